#include "cli/report/report_page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tulle::cli {

std::string escape_for_script(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char character : text) {
    switch (character) {
      case '<': escaped += "\\u003c"; break;
      case '>': escaped += "\\u003e"; break;
      case '&': escaped += "\\u0026"; break;
      default: escaped += character;
    }
  }
  return escaped;
}

std::string report_page(std::span<const std::string> rows, std::string_view made) {
  constexpr std::string_view kMarker = "@DATA@";
  const std::string data = fmt::format(R"({{"made":"{}","papers":{},"rows":[{}]}})", made, kPaperFigures,
                                       fmt::join(rows.begin(), rows.end(), ",\n"));
  std::string page(kPageTemplate);
  return page.replace(page.find(kMarker), kMarker.size(), escape_for_script(data));
}

}  // namespace tulle::cli
