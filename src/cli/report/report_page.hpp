// The page of `tulle report`: a template that was built in, filled with rows.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tulle::cli {

/// Made by report/assemble.cmake: the page with styles, scripts and Chart.js, and "@DATA@" where the data goes. Empty
/// where the build found no Chart.js.
extern const std::string_view kPageTemplate;
/// report/papers.json.
extern const std::string_view kPaperFigures;

/// JSON that no text in it can end the script element that holds it: '<', '>' and '&' are written as escapes.
/// REQUIRES: `text` is JSON, where those characters occur only inside of strings.
std::string escape_for_script(std::string_view text);

/// The whole page. `rows` are JSON objects, `made` the time. REQUIRES: kPageTemplate is not empty.
std::string report_page(std::span<const std::string> rows, std::string_view made);

}  // namespace tulle::cli
