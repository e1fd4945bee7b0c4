# The installed tree: headers, libraries, find_package(tulle) and pkg-config.
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tulle DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        PATTERN "mpi.hpp" EXCLUDE)
if(TULLE_HAVE_MPI)
  install(FILES ${PROJECT_SOURCE_DIR}/include/tulle/comm/mpi.hpp
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tulle/comm)
  install(EXPORT tulle_mpi_targets NAMESPACE tulle:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tulle
          FILE tulle-mpi-targets.cmake)
endif()

install(TARGETS tulle EXPORT tulle_targets)
install(EXPORT tulle_targets NAMESPACE tulle:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tulle FILE tulle-targets.cmake)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tulle-config.cmake.in ${PROJECT_BINARY_DIR}/tulle-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tulle)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tulle-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tulle-config.cmake ${PROJECT_BINARY_DIR}/tulle-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tulle)

configure_file(${PROJECT_SOURCE_DIR}/cmake/tulle.pc.in ${PROJECT_BINARY_DIR}/tulle.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tulle.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
