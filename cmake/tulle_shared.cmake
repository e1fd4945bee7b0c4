# Libraries of whole layers, made of the objects that the static libraries have: nothing is compiled twice.
#
#   libtulle.so          the layers that every user needs            tulle::shared
#   libtulle_linear.so   sparse linear models; needs LibArchive      tulle::linear_shared
#   libtulle_mpi.so      the MPI transport                           tulle::mpi_shared
#   libtulle.a           as libtulle.so, for pkg-config
#
# Objects are compiled with hidden visibility. What public headers declare, between their pragmas, is what these export.
set(TULLE_CORE_LAYERS base stream select codec comm collectives tune gradient server)

# tulle_shared(<target> NAME <file> EXPORT_NAME <name> EXPORT <set> LAYERS <layer>... [PUBLIC <target>...] [PRIVATE ...])
function(tulle_shared target)
  cmake_parse_arguments(SHARED "" "NAME;EXPORT_NAME;EXPORT" "LAYERS;PUBLIC;PRIVATE" ${ARGN})
  add_library(${target} SHARED)
  foreach(layer IN LISTS SHARED_LAYERS)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:tulle_${layer}>)
  endforeach()
  add_library(tulle::${SHARED_EXPORT_NAME} ALIAS ${target})
  # Before 1.0 every minor version may break what was linked with the one before.
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${SHARED_NAME} EXPORT_NAME ${SHARED_EXPORT_NAME} LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                             $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PUBLIC ${SHARED_PUBLIC} PRIVATE ${SHARED_PRIVATE})
  target_link_options(${target} PRIVATE -Wl,--no-undefined)
  install(TARGETS ${target} EXPORT ${SHARED_EXPORT} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

add_library(tulle_archive STATIC)
foreach(layer IN LISTS TULLE_CORE_LAYERS)
  target_sources(tulle_archive PRIVATE $<TARGET_OBJECTS:tulle_${layer}>)
endforeach()
set_target_properties(tulle_archive PROPERTIES OUTPUT_NAME tulle LINKER_LANGUAGE CXX)
install(TARGETS tulle_archive ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

tulle_shared(tulle_shared NAME tulle EXPORT_NAME shared EXPORT tulle_targets
             LAYERS ${TULLE_CORE_LAYERS} PUBLIC Threads::Threads PRIVATE fmt::fmt hwy::hwy TBB::tbb)
tulle_shared(tulle_linear_shared NAME tulle_linear EXPORT_NAME linear_shared EXPORT tulle_linear_targets
             LAYERS linear PUBLIC tulle_shared PRIVATE fmt::fmt LibArchive::LibArchive)
if(TULLE_HAVE_MPI)
  tulle_shared(tulle_mpi_shared NAME tulle_mpi EXPORT_NAME mpi_shared EXPORT tulle_mpi_targets
               LAYERS mpi PUBLIC tulle_shared MPI::MPI_CXX PRIVATE fmt::fmt)
endif()
