#include "base/simd.hpp"

#include <hwy/targets.h>

#include <cctype>
#include <cstdlib>
#include <string>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

std::string lower_case(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

void restrict_to(const std::string& name) {
  std::string allowed;
  const std::int64_t supported = hwy::SupportedTargets() | HWY_STATIC_TARGET;
  for (std::int64_t rest = supported; rest != 0; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    const std::string target_name = lower_case(hwy::TargetName(target));
    if (target_name == "unknown") continue;
    if (target_name == name) return hwy::SetSupportedTargetsForTest(target);
    allowed += (allowed.empty() ? "" : ", ") + target_name;
  }
  throw Error(ErrorKind::bad_input, "TULLE_SIMD is '" + name + "'; this CPU has " + allowed);
}

bool read_environment() {
  if (const char* name = std::getenv("TULLE_SIMD"); name != nullptr && *name != '\0') restrict_to(lower_case(name));
  return true;
}

}  // namespace

void apply_simd_environment() { [[maybe_unused]] static const bool done = read_environment(); }

}  // namespace tulle
