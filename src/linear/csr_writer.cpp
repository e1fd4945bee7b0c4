#include <fmt/format.h>

#include <algorithm>

#include "base/output_file.hpp"
#include "linear/csr_layout.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"

namespace tulle::linear {

struct CsrWriter::State {
  OutputFile file;
  std::uint64_t block_bytes;
  CsrInfo info{};
  Rows open{};
};

CsrWriter::CsrWriter(const std::string& path, std::uint64_t block_bytes)
    : state_(new State{OutputFile(path), block_bytes}) {
  state_->file.write(CsrHeaderBytes{});
}

CsrWriter::~CsrWriter() = default;

void CsrWriter::add(RowView row, float label) {
  state_->open.append(row, label);
  if (state_->open.bytes() >= state_->block_bytes) end_block();
}

void CsrWriter::add(const Rows& rows) {
  for (std::size_t row = 0; row < rows.size(); ++row) add(rows[row], rows.label(row));
}

void CsrWriter::end_block() {
  State& state = *state_;
  const Rows& rows = state.open;
  CsrBlock block{.offset = state.file.position(), .rows = rows.size(), .nonzeros = rows.nonzeros()};
  block.is_binary = rows.is_binary() ? 1 : 0;
  std::vector<std::uint32_t> lengths;
  for (std::size_t row = 0; row < rows.size(); ++row)
    lengths.push_back(static_cast<std::uint32_t>(rows[row].indices.size()));
  const auto write = [&](auto values) {
    state.file.write_array(values);
    block.checksum = crc32c(std::as_bytes(values), block.checksum);
  };
  write(rows.labels());
  write(std::span<const std::uint32_t>(lengths));
  write(rows.indices());
  write(rows.values());
  block.bytes = state.file.position() - block.offset;
  state.info.rows += block.rows;
  state.info.nonzeros += block.nonzeros;
  state.info.features = std::max(state.info.features, rows.features());
  state.info.blocks.push_back(block);
  state.open.clear();
}

CsrInfo CsrWriter::finish(std::uint64_t features) {
  State& state = *state_;
  if (state.open.size() > 0) end_block();
  if (features != 0 && features < state.info.features) {
    throw Error(ErrorKind::bad_input,
                fmt::format("the data has {} features, more than {}", state.info.features, features));
  }
  state.info.features = std::max(state.info.features, features);
  const std::uint64_t table_offset = state.file.position();
  const std::vector<std::byte> table = encode_table(state.info.blocks);
  state.file.write(table);
  state.file.write_at(0, encode_header({.rows = state.info.rows,
                                        .features = state.info.features,
                                        .nonzeros = state.info.nonzeros,
                                        .table_offset = table_offset,
                                        .blocks = state.info.blocks.size(),
                                        .table_checksum = crc32c(table)}));
  state.file.commit();
  return state.info;
}

}  // namespace tulle::linear
