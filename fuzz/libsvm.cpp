// Rows as text, libsvm and csv: what is read is rows that every solver may rely on, and a line that is refused leaves
// none.
#include <cmath>

#include "fuzz/fuzz.hpp"
#include "tulle/linear/text_format.hpp"

using namespace tulle;
using namespace tulle::linear;

namespace {

void check(const Rows& rows) {
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const RowView view = rows[row];
    fuzz::require(std::isfinite(rows.label(row)), "a label is finite");
    for (std::size_t i = 0; i < view.indices.size(); ++i) {
      fuzz::require(i == 0 || view.indices[i - 1] < view.indices[i], "indices of a row increase");
      fuzz::require(view.indices[i] < kMaxFeatures, "an index is a feature's");
      fuzz::require(std::isfinite(view.value(i)), "a value is finite");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto choice = input.take<std::uint8_t>();
  TextOptions options;
  options.format = choice % 2 == 0 ? TextFormat::libsvm : TextFormat::csv;
  options.first_index = choice / 2 % 2;
  const fuzz::Bytes bytes = input.rest();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Rows rows;
  std::size_t lines = 0, faults = 0;
  const auto parse = [&](std::string_view line, Rows& into) {
    lines += 1;
    const std::size_t before = into.size();
    auto fault = parse_line(line, options, into);
    fuzz::require(!fault || into.size() == before, "a line that is refused adds no row");
    return fault;
  };
  parse_lines(text, parse, rows, [&](std::size_t offset, std::string_view line, const LineFault& fault) {
    faults += 1;
    fuzz::require(offset <= text.size() && fault.column <= line.size() + 1, "a fault lies in its line");
  });
  fuzz::require(rows.size() + faults <= lines, "a line is a row at most");
  check(rows);
  return 0;
}
