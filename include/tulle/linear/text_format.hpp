// Rows as text: libsvm lines, and CSV with a label in front.
//
// libsvm: `label index:value index:value … # comment`. Separators are spaces, tabs and commas; indices count from
// `first_index`, in any order but each once; a `qid:` is ignored. CSV: `label,value,value,…`; the i-th value belongs to
// feature i, and what is empty or 0 is absent. Empty lines and lines that begin with # mean nothing.
//
// Threads: the functions keep no state and may be called from any thread; `rows` by one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tulle/linear/rows.hpp"

#pragma GCC visibility push(default)
namespace tulle::linear {

enum class TextFormat { libsvm, csv };

struct TextOptions {
  TextFormat format = TextFormat::libsvm;
  std::uint32_t first_index = 1;  ///< what the first feature is called
  bool skip_bad = false;          ///< count lines that are wrong, instead of throwing
};

/// Why a line is no row, and at which of its characters, from 1.
struct LineFault {
  std::string reason;
  std::size_t column = 1;
};

/// Appends the row of one line without its end, or nothing where the line is empty. On a fault `rows` is as before. One
/// pass; where indices do not increase, a sort.
std::optional<LineFault> parse_line(std::string_view line, const TextOptions& options, Rows& rows);

/// parse_line() with its options, or something else that makes a row of a line.
using ParseLine = std::function<std::optional<LineFault>(std::string_view line, Rows& rows)>;
/// Called with the offset of a bad line in the text. May throw, which ends parse_lines(); rows before it stay appended.
using OnFault = std::function<void(std::size_t offset, std::string_view line, const LineFault& fault)>;

/// Appends the rows of all lines of `text`; the last may lack its end. With parse_line() more than 200 MB/s on a core.
void parse_lines(std::string_view text, const ParseLine& parse, Rows& rows, const OnFault& on_fault);

}  // namespace tulle::linear
#pragma GCC visibility pop
