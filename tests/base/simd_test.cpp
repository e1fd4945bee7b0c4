#include "base/simd.hpp"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdlib>
#include <string>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

// One test: the variable is read once in a process.
TEST(Simd, VariableForcesATargetAndRefusesUnknownNames) {
  setenv("TULLE_SIMD", "mmx", 1);
  try {
    apply_simd_environment();
    FAIL() << "mmx was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(std::string(error.what()).find("mmx"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("scalar"), std::string::npos) << error.what();
  }
  setenv("TULLE_SIMD", "scalar", 1);
  apply_simd_environment();
  EXPECT_EQ(hwy::SupportedTargets(), HWY_STATIC_TARGET);
  unsetenv("TULLE_SIMD");
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace
}  // namespace tulle
