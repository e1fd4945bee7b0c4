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
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  foreach(layer IN LISTS LAYER_DEPENDS)
    target_link_libraries(${target} PUBLIC tulle_${layer})
  endforeach()
  target_link_libraries(${target} PRIVATE ${LAYER_LIBRARIES})
  tulle_compile_options(${target})
  install(TARGETS ${target} EXPORT ${LAYER_EXPORT} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# Warnings and sanitizers, the same for every target of the project.
function(tulle_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wnon-virtual-dtor -Wno-psabi
                         -Wno-missing-field-initializers)  # designated initializers leave out what has a default
  if(TULLE_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${TULLE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${TULLE_SANITIZE})
  endif()
endfunction()
