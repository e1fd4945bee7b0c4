# tulle_layer(<name> SOURCES ... [DEPENDS <layer>...] [LIBRARIES <target>...] [EXPORT <set>])
#
# One directory of src/ as one static library tulle_<name>, exported as tulle::<name>. DEPENDS names the layers to its
# left, whose headers it may include; LIBRARIES are third-party and private.
function(tulle_layer name)
  cmake_parse_arguments(LAYER "" "EXPORT" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  if(NOT LAYER_EXPORT)
    set(LAYER_EXPORT tulle_targets)
  endif()
  set(target tulle_${name})
  add_library(${target} STATIC ${LAYER_SOURCES})
  add_library(tulle::${name} ALIAS ${target})
  # Names are hidden unless a header says otherwise, for the shared libraries that are made of the same objects.
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name}
                        CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                              $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  foreach(layer IN LISTS LAYER_DEPENDS)
    target_link_libraries(${target} PUBLIC tulle_${layer})
  endforeach()
  target_link_libraries(${target} PRIVATE ${LAYER_LIBRARIES})
  tulle_compile_options(${target})
  tulle_precompile(${target})
  install(TARGETS ${target} EXPORT ${LAYER_EXPORT} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# tulle_precompile(<target> [<header>...])
#
# Reading the standard library's headers takes more than a second for every source, and longer than all else for most.
# Who builds the same sources in several places is better off with ccache, which finds less with this, and sets
# TULLE_PRECOMPILE=OFF in the environment.
function(tulle_precompile target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(TULLE_PRECOMPILE AND count GREATER 4)
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled.hpp ${ARGN})
  endif()
endfunction()

# Warnings and sanitizers, the same for every target of the project.
function(tulle_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wnon-virtual-dtor -Wno-psabi
                         -Wno-missing-field-initializers)  # designated initializers leave out what has a default
  if(TULLE_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${TULLE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
                           # clang 14 cannot do that with coroutines.
                           $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>
                           # These double the time of compiling; the fuzzers, built by clang, have them.
                           $<$<CXX_COMPILER_ID:GNU>:-fno-sanitize=alignment,null,object-size,vptr>)
    target_link_options(${target} PUBLIC -fsanitize=${TULLE_SANITIZE})
  endif()
endfunction()
