# Makes one page of the parts and puts it into a C++ source, as a string. Run by cmake -P with SOURCE (this directory),
# CHART_JS (Chart.js, minified; empty where it is missing), FILES (the scripts, in order) and OUTPUT.
function(insert page_variable marker path)
  file(READ "${path}" text)
  string(REPLACE "@${marker}@" "${text}" page "${${page_variable}}")
  set(${page_variable} "${page}" PARENT_SCOPE)
endfunction()

set(page "")
if(CHART_JS)
  file(READ "${SOURCE}/page.html" page)
  insert(page PAGE_CSS "${SOURCE}/page.css")
  insert(page CHART_JS "${CHART_JS}")
  set(scripts "\"use strict\";\n")
  foreach(name IN LISTS FILES)
    file(READ "${SOURCE}/js/${name}.js" script)
    string(APPEND scripts "${script}\n")
  endforeach()
  string(REPLACE "@PAGE_JS@" "${scripts}" page "${page}")
endif()
file(READ "${SOURCE}/papers.json" papers)
file(WRITE "${OUTPUT}" "// Made by report/assemble.cmake.
#include \"cli/report/report_page.hpp\"

namespace tulle::cli {
const std::string_view kPageTemplate = R\"asset(${page})asset\";
const std::string_view kPaperFigures = R\"asset(${papers})asset\";
}  // namespace tulle::cli
")
