# The installed tree: headers, libraries, find_package(tulle) and pkg-config.
include(CMakePackageConfigHelpers)
set(tulle_package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/tulle)

# Headers.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tulle ${PROJECT_BINARY_DIR}/include/tulle
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} PATTERN "mpi.hpp" EXCLUDE PATTERN "tulle/nn" EXCLUDE)
if(TULLE_HAVE_NN)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tulle/nn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tulle)
endif()
if(TULLE_HAVE_MPI)
  install(FILES ${PROJECT_SOURCE_DIR}/include/tulle/comm/mpi.hpp
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tulle/comm)
endif()

# find_package(tulle). What needs more than the core has a file of its own, so that others do without.
install(TARGETS tulle EXPORT tulle_targets)
install(EXPORT tulle_targets NAMESPACE tulle:: DESTINATION ${tulle_package_directory} FILE tulle-targets.cmake)
install(EXPORT tulle_linear_targets NAMESPACE tulle:: DESTINATION ${tulle_package_directory}
        FILE tulle-linear-targets.cmake)
if(TULLE_HAVE_NN)
  install(EXPORT tulle_nn_targets NAMESPACE tulle:: DESTINATION ${tulle_package_directory} FILE tulle-nn-targets.cmake)
endif()
if(TULLE_HAVE_MPI)
  install(EXPORT tulle_mpi_targets NAMESPACE tulle:: DESTINATION ${tulle_package_directory} FILE tulle-mpi-targets.cmake)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tulle-config.cmake.in ${PROJECT_BINARY_DIR}/tulle-config.cmake
                              INSTALL_DESTINATION ${tulle_package_directory})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tulle-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tulle-config.cmake ${PROJECT_BINARY_DIR}/tulle-config-version.cmake
        DESTINATION ${tulle_package_directory})

# pkg-config, for libtulle.so and libtulle.a.
if(TULLE_BUILD_SHARED)
  set(tulle_pc_private_libs " -lfmt -lhwy -ltbb -pthread")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/tulle.pc.in ${PROJECT_BINARY_DIR}/tulle.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/tulle.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
if(TULLE_BUILD_SHARED AND TULLE_HAVE_MPI)
  # Without the C++ bindings, which MPI 3 removed.
  set(tulle_pc_mpi_cflags " -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX")
  foreach(directory IN LISTS MPI_CXX_INCLUDE_DIRS)
    string(APPEND tulle_pc_mpi_cflags " -I${directory}")
  endforeach()
  set(mpi_libraries ${MPI_CXX_LIBRARIES})
  list(FILTER mpi_libraries EXCLUDE REGEX "mpi_cxx|mpichcxx")
  list(JOIN mpi_libraries " " tulle_pc_mpi_libs)
  string(PREPEND tulle_pc_mpi_libs " ")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/tulle-mpi.pc.in ${PROJECT_BINARY_DIR}/tulle-mpi.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/tulle-mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
