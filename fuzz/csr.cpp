// Files of `tulle convert`: rows that are read are what a writer may have written.
#include "fuzz/fuzz.hpp"
#include "linear/csr_layout.hpp"
#include "tulle/linear/csr_file.hpp"

using namespace tulle;
using namespace tulle::linear;

namespace {

// Header, table and blocks as far as they lie in the file.
void mend(std::string& file) {
  if (file.size() < kCsrHeaderBytes) return;
  const std::span bytes = std::as_bytes(std::span(file));
  const auto table = load_at<std::uint64_t>(bytes, 40), blocks = load_at<std::uint64_t>(bytes, 48);
  if (table <= file.size() && blocks <= (file.size() - table) / kCsrEntryBytes) {
    for (std::uint64_t i = 0; i < blocks; ++i) {
      const CsrBlock block = decode_entry(bytes.subspan(table + i * kCsrEntryBytes, kCsrEntryBytes));
      const bool fits = block.offset <= file.size() && block.bytes <= file.size() - block.offset;
      if (fits) fuzz::mend_checksum(file, table + i * kCsrEntryBytes + 32, block.offset, block.offset + block.bytes);
    }
    fuzz::mend_checksum(file, 56, table, table + blocks * kCsrEntryBytes);
  }
  fuzz::mend_checksum(file, 60, 0, 60);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  if (size % 8 != 7) mend(file);  // some are read as they are
  fuzz::read_hostile([&] {
    const ReaderPtr reader = open_memory("fuzz", file);
    const CsrInfo info = read_csr_info(*reader);
    for (std::size_t block = 0; block < info.blocks.size(); ++block) {
      const Rows rows = read_csr_block(*reader, info, block);
      fuzz::require(rows.size() == info.blocks[block].rows, "as many rows as the table says");
      fuzz::require(rows.nonzeros() == info.blocks[block].nonzeros, "as many non-zeros as the table says");
      fuzz::require(rows.features() <= info.features, "no index beyond the features");
    }
  });
  return 0;
}
