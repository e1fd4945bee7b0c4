#include "server/compression.hpp"

#include <fmt/format.h>

#include "codec/recode.hpp"
#include "collectives/index_choice.hpp"
#include "gradient/accumulate.hpp"
#include "gradient/policy.hpp"
#include "tulle/base/error.hpp"
#include "tulle/codec/frame.hpp"

namespace tulle::server {
namespace {

AnyStream dense_stream(Buffer values) {
  const std::uint64_t size = values.size() / sizeof(float);
  return AnyStream::dense(ValueType::f32, size, {0, size}, std::move(values));
}

}  // namespace

CompressionContext::CompressionContext(const Recipe& recipe, const Parameter& parameter,
                                       const ContextSettings& settings)
    : name_(parameter.name),
      recipe_(recipe),
      size_(parameter.size),
      settings_(settings),
      is_whole_(gradient::travels_whole(recipe, parameter) || (!selects() && recipe.values.coding == ValueCoding::raw)),
      keeps_error_(recipe.error_feedback || settings.holds) {
  recipe_.values.threads = settings.threads;
}

CodedChange CompressionContext::compress(std::span<const float> change, std::uint64_t sequence) {
  if (keeps_error_ && !(is_whole_ && error_.empty())) {
    hold(change);
    return from_error(sequence);
  }
  if (is_whole_) return whole(change, sequence);
  if (!selects()) return coded(dense_stream(Buffer::borrow(std::as_bytes(change))), sequence, recipe_.values);
  const Selection selection = select<float>(recipe_.selector, change, select_options(sequence));
  return coded(selection.stream, sequence, recipe_.values);
}

// The first change is copied, so that a zero keeps its sign.
void CompressionContext::hold(std::span<const float> change) {
  if (error_.empty()) {
    error_.assign(change.begin(), change.end());
    return;
  }
  require_finite(gradient::accumulate({.decay = static_cast<float>(recipe_.decay)}, change, {}, {}, error_));
}

void CompressionContext::require_finite(bool is_finite) const {
  if (is_finite) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("{}: what coding has lost so far outgrew f32; lower the learning rate or "
                          "clip the gradients",
                          name_));
}

void CompressionContext::give_back(const AnyStream& decoded) {
  if (!keeps_error_) return;
  PoolVector<float> dense(size_);
  gradient::write_dense(decoded, 1, dense);
  if (error_.empty()) {
    error_ = std::move(dense);
  } else {
    require_finite(gradient::accumulate({}, dense, {}, {}, error_));
  }
}

CodedChange CompressionContext::from_error(std::uint64_t sequence) {
  if (is_whole_) {
    CodedChange change = whole(error_, sequence);
    error_.clear();
    return change;
  }
  if (!selects()) {
    CodedChange change =
        coded(dense_stream(Buffer::borrow(std::as_bytes(std::span(error_)))), sequence, recipe_.values);
    gradient::subtract(error_, change.decoded);
    return change;
  }
  const AnyStream taken = select_in_place<float>(recipe_.selector, error_, select_options(sequence)).stream;
  CodedChange change = coded(taken, sequence, recipe_.values);
  if (recipe_.values.coding != ValueCoding::raw) {
    gradient::put_back(error_, taken);
    gradient::subtract(error_, change.decoded);
  }
  return change;
}

CodedChange CompressionContext::whole(std::span<const float> change, std::uint64_t sequence) {
  return coded(dense_stream(Buffer::copy_of(std::as_bytes(change))), sequence, {});
}

CodedChange CompressionContext::coded(const AnyStream& stream, std::uint64_t sequence, const ValueCodec& codec) {
  FrameCodings codings{.values = codec};
  codings.rounding = {settings_.seed, settings_.rank, sequence, settings_.position};
  if (!stream.is_dense()) codings.indices = IndexChoice(recipe_.indices, settings_.profile).for_stream(stream);
  CodedChange change;
  encodings_ += 1;
  const bool keeps_loss = keeps_error_ && !recipe_.stochastic_feedback;
  change.decoded = recode_frame(stream, {.sequence = sequence, .contributed = stream.nnz()}, codings, {}, change.frame,
                                keeps_loss ? Scales::nearest : Scales::published)
                       .to_owned();
  return change;
}

SelectOptions CompressionContext::select_options(std::uint64_t step) const {
  SelectOptions options{.density = recipe_.density,
                        .bucket = recipe_.bucket,
                        .form = recipe_.form,
                        .seed = settings_.seed,
                        .step = step,
                        .threads = settings_.threads};
  if (recipe_.keep > 0) options.k = recipe_.keep;
  return options;
}

AnyStream decode_change(const Segments& frame, std::uint64_t size, std::uint64_t sequence, int threads) {
  std::span<const Buffer> segments = frame;
  const FrameExpectation expectation{.sequence = sequence, .dimension = size, .threads = threads};
  AnyStream stream = decode_frame(segments, expectation).stream;
  if (!segments.empty()) throw Error(ErrorKind::bad_message, "letter field 'body': segments are left over");
  if (stream.range().begin != 0 || stream.range().end != size) {
    throw Error(ErrorKind::bad_message, "letter field 'body': the frame is of a part of the parameter");
  }
  return stream;
}

}  // namespace tulle::server
