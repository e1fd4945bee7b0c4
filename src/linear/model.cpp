#include "tulle/linear/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/json_counts.hpp"
#include "base/little_endian.hpp"
#include "base/memory.hpp"
#include "base/output_file.hpp"
#include "linear/losses.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"

namespace tulle::linear {
namespace {

constexpr std::string_view kMagic = "TULLELIN";
constexpr std::size_t kHeaderBytes = 24;
constexpr std::array<std::pair<std::string_view, Loss>, 4> kLosses = {{{"logistic", Loss::logistic},
                                                                       {"hinge", Loss::hinge},
                                                                       {"squared_hinge", Loss::squared_hinge},
                                                                       {"squares", Loss::squares}}};

double sigmoid(double margin) { return 1 / (1 + std::exp(-margin)); }

[[noreturn]] void refuse(const PositionalReader& reader, std::string_view reason) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: {}", reader.path(), reason));
}

nlohmann::json describe(const LinearModel& model) {
  return {{"format", 1},
          {"loss", to_string(model.loss)},
          {"features", model.features},
          {"classes", model.classes},
          {"intercepts", model.intercepts},
          {"nonzeros", model.nonzeros()}};
}

struct SparseWeights {
  std::vector<std::uint64_t> places;  // in weights
  std::vector<float> values;
};

SparseWeights sparse_weights(const LinearModel& model) {
  SparseWeights sparse;
  for (std::size_t i = 0; i < model.weights.size(); ++i) {
    if (model.weights[i] == 0) continue;
    sparse.places.push_back(i);
    sparse.values.push_back(model.weights[i]);
  }
  return sparse;
}

LinearModel from_description(const nlohmann::json& json) {
  LinearModel model;
  model.loss = loss_from(json.at("loss").get<std::string>());
  require_counts(json, {"features"}, "its description");
  model.features = json.at("features").get<std::uint64_t>();
  model.classes = json.at("classes").get<std::vector<float>>();
  model.intercepts = json.at("intercepts").get<std::vector<float>>();
  const std::size_t least_classes = model.is_classifier() ? 2 : 0;  // predict() names one of them
  const std::size_t vectors = vectors_of(model.classes.size());
  if (model.features > kMaxFeatures / vectors || model.classes.size() < least_classes ||
      model.intercepts.size() != vectors) {
    throw Error(ErrorKind::bad_input, "its description contradicts itself");
  }
  require_memory(model.features * vectors * sizeof(float), "the model");
  return model;
}

LinearModel model_described_by(const PositionalReader& reader, std::string_view text) {
  try {
    return from_description(nlohmann::json::parse(text));
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", reader.path(), error.what()));
  }
}

void place_weights(const PositionalReader& reader, std::span<const std::byte> bytes, std::uint64_t count,
                   LinearModel& model) {
  if (count > bytes.size() / 12 || bytes.size() != count * 12) refuse(reader, "the weights are not as many as it says");
  model.weights.assign(model.vectors() * model.features, 0.0f);
  for (std::size_t i = 0; i < count; ++i) {
    const auto place = load_at<std::uint64_t>(bytes, i * 8);
    if (place >= model.weights.size()) refuse(reader, "a weight lies outside of the model");
    model.weights[place] = load_at<float>(bytes, count * 8 + i * 4);
  }
}

}  // namespace

std::string_view to_string(Loss loss) {
  for (const auto& [name, each] : kLosses) {
    if (each == loss) return name;
  }
  return "unknown";
}

Loss loss_from(std::string_view name) {
  for (const auto& [each, loss] : kLosses) {
    if (each == name) return loss;
  }
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is not one of logistic, hinge, squared_hinge, squares", name));
}

double LinearModel::margin(RowView row, std::size_t vector) const {
  const auto known = static_cast<std::size_t>(std::lower_bound(row.indices.begin(), row.indices.end(), features) -
                                              row.indices.begin());
  row.indices = row.indices.first(known);
  row.values = row.values.first(std::min(known, row.values.size()));
  return dot(row, weights.data() + vector * features) + intercepts[vector];
}

float LinearModel::predict(RowView row) const {
  if (!is_classifier()) return static_cast<float>(margin(row));
  if (vectors() == 1) return classes[margin(row) > 0 ? 1 : 0];
  std::size_t best = 0;
  double best_margin = margin(row, 0);
  for (std::size_t vector = 1; vector < vectors(); ++vector) {
    const double each = margin(row, vector);
    if (each <= best_margin) continue;
    best = vector;
    best_margin = each;
  }
  return classes[best];
}

std::vector<double> LinearModel::probabilities(RowView row) const {
  if (loss != Loss::logistic) {
    throw Error(ErrorKind::unsupported,
                fmt::format("a model of {} gives no probabilities; logistic does", to_string(loss)));
  }
  if (vectors() == 1) {
    const double positive = sigmoid(margin(row));
    return {1 - positive, positive};
  }
  std::vector<double> shares;
  for (std::size_t vector = 0; vector < vectors(); ++vector) shares.push_back(sigmoid(margin(row, vector)));
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

double LinearModel::penalty(const Penalty& penalty) const {
  double absolute = 0, squared = 0;
  for (const float weight : weights) {
    absolute += std::abs(weight);
    squared += static_cast<double>(weight) * weight;
  }
  return penalty.l1 * absolute + penalty.l2 / 2 * squared;
}

std::uint64_t LinearModel::nonzeros() const {
  return static_cast<std::uint64_t>(std::count_if(weights.begin(), weights.end(), [](float w) { return w != 0; }));
}

void save_model(const LinearModel& model, const std::string& path) {
  const std::string description = describe(model).dump();
  const SparseWeights sparse = sparse_weights(model);
  std::uint32_t checksum = crc32c(std::as_bytes(std::span(description)));
  checksum = crc32c(std::as_bytes(std::span(sparse.places)), checksum);
  checksum = crc32c(std::as_bytes(std::span(sparse.values)), checksum);
  std::array<std::byte, kHeaderBytes> header{};
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  store_at<std::uint32_t>(header, 8, static_cast<std::uint32_t>(description.size()));
  store_at<std::uint32_t>(header, 12, checksum);
  store_at<std::uint64_t>(header, 16, sparse.places.size());
  OutputFile file(path);
  file.write(header);
  file.write(std::as_bytes(std::span(description)));
  file.write(std::as_bytes(std::span(sparse.places)));
  file.write(std::as_bytes(std::span(sparse.values)));
  file.commit();
}

LinearModel load_model(const PositionalReader& reader) {
  std::vector<std::byte> bytes(reader.size());
  reader.read_at(0, bytes);
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    refuse(reader, "not a model of 'tulle train linear'");
  }
  const auto description_bytes = load_at<std::uint32_t>(bytes, 8);
  const std::span body = std::span<const std::byte>(bytes).subspan(kHeaderBytes);
  if (description_bytes > body.size() || crc32c(body) != load_at<std::uint32_t>(bytes, 12)) {
    refuse(reader, "the model is damaged");
  }
  try {
    const auto* const text = reinterpret_cast<const char*>(body.data());
    LinearModel model = model_described_by(reader, {text, description_bytes});
    place_weights(reader, body.subspan(description_bytes), load_at<std::uint64_t>(bytes, 16), model);
    return model;
  } catch (const nlohmann::json::exception& error) {
    refuse(reader, error.what());
  }
}

}  // namespace tulle::linear
