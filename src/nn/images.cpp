// Pictures: their formats, and what becomes of them on their way into a network.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/unpacker.hpp"
#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/nn/data.hpp"

namespace tulle::nn {
namespace {

[[noreturn]] void refuse(const std::string& path, std::uint64_t byte, const std::string& reason) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: byte {}: {}", path, byte, reason));
}

std::uint32_t big_endian_at(const std::string& bytes, std::size_t offset) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) word = word << 8 | static_cast<std::uint8_t>(bytes[offset + i]);
  return word;
}

// The lengths of an idx file's dimensions: two zeros, the type 8 (bytes), how many dimensions, and each of them.
std::vector<std::uint64_t> idx_shape(const std::string& path, const std::string& bytes, std::size_t dimensions) {
  const std::size_t head = 4 + 4 * dimensions;
  if (bytes.size() < head) refuse(path, bytes.size(), fmt::format("ends in the head, which has {} bytes", head));
  const auto wanted = static_cast<std::uint32_t>(0x0800 + dimensions);
  if (const std::uint32_t magic = big_endian_at(bytes, 0); magic != wanted) {
    refuse(path, 0,
           fmt::format("the magic number is {:#010x}, and {:#010x} in an idx file of bytes with {} dimensions", magic,
                       wanted, dimensions));
  }
  std::vector<std::uint64_t> shape;
  std::uint64_t values = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    shape.push_back(big_endian_at(bytes, 4 + 4 * i));
    if (i > 0 && (shape[i] == 0 || shape[i] > 4096)) refuse(path, 4 + 4 * i, fmt::format("a size of {}", shape[i]));
    values *= shape[i];
  }
  if (bytes.size() - head != values) {
    refuse(path, std::min<std::uint64_t>(bytes.size(), head + values),
           fmt::format("the head announces {} bytes after it, and {} are there", values, bytes.size() - head));
  }
  return shape;
}

void require_labels(const std::string& path, std::uint64_t head, std::uint64_t stride, const Images& images) {
  for (std::uint64_t i = 0; i < images.size(); ++i) {
    if (images.labels[i] < images.classes) continue;
    refuse(path, head + i * stride, fmt::format("label {} is not below {}", images.labels[i], images.classes));
  }
}

constexpr std::uint32_t kCifarSide = 32;
constexpr std::uint64_t kCifarRecord = 1 + 3 * kCifarSide * kCifarSide;

void append_cifar10(const std::string& path, Images& images) {
  const std::string bytes = read_unpacked(path);
  if (bytes.empty() || bytes.size() % kCifarRecord != 0) {
    refuse(path, bytes.size() / kCifarRecord * kCifarRecord,
           fmt::format("a record of {} bytes begins here, and {} are left", kCifarRecord, bytes.size() % kCifarRecord));
  }
  Images part = {.channels = 3, .height = kCifarSide, .width = kCifarSide};
  for (std::size_t at = 0; at < bytes.size(); at += kCifarRecord) {
    part.labels.push_back(static_cast<std::uint8_t>(bytes[at]));
    part.pixels.insert(part.pixels.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                       bytes.begin() + static_cast<std::ptrdiff_t>(at + kCifarRecord));
  }
  require_labels(path, 0, kCifarRecord, part);
  images.labels.insert(images.labels.end(), part.labels.begin(), part.labels.end());
  images.pixels.insert(images.pixels.end(), part.pixels.begin(), part.pixels.end());
}

// Where a picture's pixel comes from: shifted, and maybe mirrored.
struct Placement {
  std::int64_t down = 0, right = 0;
  bool is_flipped = false;
};

void fill(const Images& images, std::uint64_t sample, const Normalization& normalization, Placement placement,
          std::span<float> values) {
  const std::int64_t height = images.height, width = images.width;
  const std::uint8_t* const pixels = images.pixels.data() + sample * images.values();
  for (std::int64_t channel = 0; channel < images.channels; ++channel) {
    const auto at = static_cast<std::size_t>(channel);
    const float mean = normalization.means[at], scale = normalization.scales[at];
    for (std::int64_t row = 0; row < height; ++row) {
      for (std::int64_t column = 0; column < width; ++column) {
        const std::int64_t from_row = row + placement.down;
        const std::int64_t from_column = (placement.is_flipped ? width - 1 - column : column) + placement.right;
        const bool is_inside = from_row >= 0 && from_row < height && from_column >= 0 && from_column < width;
        const std::int64_t from = (channel * height + from_row) * width + from_column;
        const float pixel = is_inside ? static_cast<float>(pixels[from]) : 0.0f;
        values[static_cast<std::size_t>((channel * height + row) * width + column)] = (pixel - mean) * scale;
      }
    }
  }
}

}  // namespace

Images read_idx(const std::string& images_path, const std::string& labels_path) {
  const std::string pixels = read_unpacked(images_path);
  const auto shape = idx_shape(images_path, pixels, 3);
  const std::string labels = read_unpacked(labels_path);
  const auto count = idx_shape(labels_path, labels, 1);
  if (count[0] != shape[0]) {
    refuse(labels_path, 4, fmt::format("{} labels for the {} pictures of {}", count[0], shape[0], images_path));
  }
  Images images = {.height = static_cast<std::uint32_t>(shape[1]), .width = static_cast<std::uint32_t>(shape[2])};
  images.pixels.assign(pixels.begin() + 16, pixels.end());
  images.labels.assign(labels.begin() + 8, labels.end());
  require_labels(labels_path, 8, 1, images);
  return images;
}

Images read_cifar10(std::span<const std::string> paths) {
  Images images = {.channels = 3, .height = kCifarSide, .width = kCifarSide};
  for (const std::string& path : paths) append_cifar10(path, images);
  return images;
}

Normalization normalization_of(const Images& images) {
  Normalization normalization;
  const std::uint64_t plane = std::uint64_t{images.height} * images.width;
  for (std::uint64_t channel = 0; channel < images.channels; ++channel) {
    std::uint64_t sum = 0, squares = 0;  // whole numbers: no order of summation to agree on
    for (std::uint64_t sample = 0; sample < images.size(); ++sample) {
      const std::uint8_t* const pixels = images.pixels.data() + sample * images.values() + channel * plane;
      for (std::uint64_t i = 0; i < plane; ++i) {
        sum += pixels[i];
        squares += std::uint64_t{pixels[i]} * pixels[i];
      }
    }
    const auto count = static_cast<double>(std::max<std::uint64_t>(1, images.size() * plane));
    const double mean = static_cast<double>(sum) / count;
    const double variance = static_cast<double>(squares) / count - mean * mean;
    normalization.means.push_back(static_cast<float>(mean));
    normalization.scales.push_back(static_cast<float>(variance > 0 ? 1 / std::sqrt(variance) : 1));
  }
  return normalization;
}

void fill_picture(const Images& images, std::uint64_t sample, const Normalization& normalization,
                  const Augmentation& augmentation, std::uint64_t seed, std::uint64_t epoch, std::span<float> values) {
  // Streams of sharding are epochs, below 2^32; these are above.
  Philox dice(seed, (epoch + 1) << 32 | sample);
  Placement placement;
  if (augmentation.pad > 0) {
    placement.down = static_cast<std::int64_t>(dice.below(2 * std::uint64_t{augmentation.pad} + 1)) - augmentation.pad;
    placement.right = static_cast<std::int64_t>(dice.below(2 * std::uint64_t{augmentation.pad} + 1)) - augmentation.pad;
  }
  placement.is_flipped = augmentation.flip && dice.below(2) == 1;
  fill(images, sample, normalization, placement, values);
}

void fill_picture(const Images& images, std::uint64_t sample, const Normalization& normalization,
                  std::span<float> values) {
  fill(images, sample, normalization, {}, values);
}

}  // namespace tulle::nn
