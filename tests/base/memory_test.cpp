#include "base/memory.hpp"

#include <gtest/gtest.h>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

TEST(Memory, AsMuchAsThereIsMayBeAskedFor) {
  EXPECT_NO_THROW(require_memory(0, "nothing"));
  EXPECT_NO_THROW(require_memory(machine_memory_bytes(), "everything"));
}

TEST(Memory, MoreThanThereIsIsRefusedWithWhatWantsIt) {
  try {
    require_memory(machine_memory_bytes() + 1, "data.bin");
    FAIL() << "was allowed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::system);
    EXPECT_EQ(std::string(error.what()).find("data.bin takes "), 0u) << error.what();
  }
}

}  // namespace
}  // namespace tulle
