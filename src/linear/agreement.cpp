#include "linear/agreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "tulle/base/crc32c.hpp"

namespace tulle::linear {

std::vector<Setting> settings_of(const TrainOptions& options, bool has_held_out) {
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  return {{"solver", options.solver == Solver::sgd ? "sgd" : "scd"},
          {"loss", text(to_string(options.loss))},
          {"l1", text(options.penalty.l1)},
          {"l2", text(options.penalty.l2)},
          {"intercept", text(options.intercept)},
          {"balanced", text(options.balanced)},
          {"class weights", text(options.class_weights)},
          {"epochs", text(options.epochs)},
          {"tolerance", text(options.tolerance)},
          {"patience", text(options.patience)},
          {"batch", text(options.batch_rows)},
          {"rate", text(options.rate)},
          {"decay", text(options.decay)},
          {"schedule", text(to_string(options.schedule))},
          {"aggregation", options.aggregation},
          {"staleness", text(options.staleness)},
          {"shuffle", text(options.shuffle)},
          {"coordinates", text(options.coordinates)},
          {"damping", text(options.damping)},
          {"seed", text(options.seed)},
          {"checkpoint", options.checkpoint.path.empty() ? "none" : "a file"},
          {"resume", text(options.checkpoint.resume)},
          {"replicas", options.replicas ? "shared" : "of each rank"},
          {"held-out rows", has_held_out ? "given" : "none"}};
}

namespace {

std::uint32_t checksum_of_ones(std::size_t count, std::uint32_t sum) {
  static const std::vector<float> ones(4096, 1.0f);
  for (; count > 0; count -= std::min(count, ones.size())) {
    sum = crc32c(std::as_bytes(std::span(ones).first(std::min(count, ones.size()))), sum);
  }
  return sum;
}

}  // namespace

Setting identity_of(Dataset& data) {
  // Each kind of number by itself, because blocks may be cut anywhere, and may leave out values that are all 1.
  std::uint32_t labels = 0, lengths = 0, indices = 0, values = 0;
  data.for_each_block([&](const Rows& rows) {
    labels = crc32c(std::as_bytes(rows.labels()), labels);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const std::uint64_t length = rows[row].indices.size();
      lengths = crc32c(std::as_bytes(std::span(&length, 1)), lengths);
    }
    indices = crc32c(std::as_bytes(rows.indices()), indices);
    values =
        rows.is_binary() ? checksum_of_ones(rows.nonzeros(), values) : crc32c(std::as_bytes(rows.values()), values);
  });
  const std::array sums{labels, lengths, indices, values};
  return {"data", fmt::format("{} rows of {} features with checksum {:08x}", data.rows(), data.features(),
                              crc32c(std::as_bytes(std::span(sums))))};
}

}  // namespace tulle::linear
