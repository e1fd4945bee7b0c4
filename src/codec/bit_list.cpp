#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/bit_list.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

#include "codec/bit_list.hpp"

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whole vectors are written, so the last ones are left to the caller.
BitList list_bits([[maybe_unused]] const std::uint8_t* bitmap, [[maybe_unused]] std::size_t bytes,
                  [[maybe_unused]] std::uint32_t first, [[maybe_unused]] std::uint32_t* positions,
                  [[maybe_unused]] std::size_t count) {
#if HWY_TARGET == HWY_SCALAR
  return {};
#else
  const hn::CappedTag<std::uint32_t, 16> d;
  const std::size_t lanes = hn::Lanes(d);
  if (lanes < 8) return {};
  const std::size_t step = lanes / 8;
  // Masks are loaded eight bytes at a time, whatever they use of them.
  std::size_t at = 0, listed = 0;
  auto position = hn::Iota(d, first);
  const auto next = hn::Set(d, static_cast<std::uint32_t>(lanes));
  for (; at + 8 <= bytes && listed + lanes <= count; at += step) {
    const auto mask = hn::LoadMaskBits(d, bitmap + at);
    hn::StoreU(hn::Compress(position, mask), d, positions + listed);
    listed += hn::CountTrue(d, mask);
    position = hn::Add(position, next);
  }
  return {at, listed};
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/simd.hpp"

namespace tulle {
HWY_EXPORT(list_bits);

BitList list_bits(std::span<const std::byte> bitmap, std::uint32_t first, std::uint32_t* positions, std::size_t count) {
  apply_simd_environment();
  return HWY_DYNAMIC_DISPATCH(list_bits)(reinterpret_cast<const std::uint8_t*>(bitmap.data()), bitmap.size(), first,
                                         positions, count);
}

}  // namespace tulle
#endif  // HWY_ONCE
