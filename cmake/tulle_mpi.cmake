# MPI: the one that the library is built with, and every one that the tests run on.
#
# The library's MPI is what find_package(MPI) finds; choose another with -DMPI_CXX_COMPILER=... Sets TULLE_HAVE_MPI.
# Libraries of different MPIs do not mix, so the tests build the transport once more for each *flavour* that they find:
# openmpi and mpich by the names that Debian gives their wrappers, or else the library's MPI under the name "primary".
set(TULLE_HAVE_MPI OFF)
if(NOT TULLE_MPI MATCHES "^([Aa]uto|AUTO|[Oo]n|ON|[Oo]ff|OFF)$")
  message(FATAL_ERROR "TULLE_MPI is '${TULLE_MPI}', not one of auto, on, off")
endif()
if(TULLE_MPI)  # false is only "off"
  set(MPI_CXX_SKIP_MPICXX ON)
  if(TULLE_MPI MATCHES "^([Aa]uto|AUTO)$")
    find_package(MPI QUIET COMPONENTS CXX)
  else()
    find_package(MPI REQUIRED COMPONENTS CXX)
  endif()
  set(TULLE_HAVE_MPI ${MPI_CXX_FOUND})
endif()
if(TULLE_HAVE_MPI)
  message(STATUS "MPI: ${MPI_CXX_COMPILER}")
else()
  message(STATUS "MPI: none; building without the MPI transport")
endif()

# tulle_add_mpi_flavour(<flavour>)
#
# Makes the target mpi_flavour_<flavour> (flags of mpicxx.<flavour>) and the library tulle_mpi_<flavour> (the sources of
# tulle_mpi built with them), and adds the flavour to the global property TULLE_MPI_FLAVOURS. Does nothing, and says so,
# where the flavour's compiler wrapper or mpirun is missing.
function(tulle_add_mpi_flavour flavour)
  if(TARGET tulle_mpi_${flavour})
    return()
  endif()
  find_program(TULLE_MPICXX_${flavour} mpicxx.${flavour})
  find_program(TULLE_MPIRUN_${flavour} mpirun.${flavour})
  mark_as_advanced(TULLE_MPICXX_${flavour} TULLE_MPIRUN_${flavour})
  if(NOT TULLE_MPICXX_${flavour} OR NOT TULLE_MPIRUN_${flavour})
    message(STATUS "MPI tests: no ${flavour}")
    return()
  endif()

  tulle_mpi_wrapper_flags(${TULLE_MPICXX_${flavour}} include_directories link_options)
  add_library(mpi_flavour_${flavour} INTERFACE IMPORTED GLOBAL)
  target_include_directories(mpi_flavour_${flavour} SYSTEM INTERFACE ${include_directories})
  target_link_libraries(mpi_flavour_${flavour} INTERFACE ${link_options})
  target_compile_definitions(mpi_flavour_${flavour} INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)

  get_target_property(sources tulle_mpi SOURCES)
  get_target_property(source_directory tulle_mpi SOURCE_DIR)
  list(TRANSFORM sources PREPEND ${source_directory}/)
  add_library(tulle_mpi_${flavour} STATIC EXCLUDE_FROM_ALL ${sources})
  target_include_directories(tulle_mpi_${flavour} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(tulle_mpi_${flavour} PUBLIC tulle_comm mpi_flavour_${flavour} PRIVATE fmt::fmt)
  tulle_compile_options(tulle_mpi_${flavour})
  set_property(GLOBAL APPEND PROPERTY TULLE_MPI_FLAVOURS ${flavour})
endfunction()

# What an MPI compiler wrapper adds: both families print the whole command with -show.
function(tulle_mpi_wrapper_flags wrapper include_directories_variable link_options_variable)
  execute_process(COMMAND ${wrapper} -show OUTPUT_VARIABLE command OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(words UNIX_COMMAND "${command}")
  list(POP_FRONT words)  # the compiler
  set(include_directories ${words})
  list(FILTER include_directories INCLUDE REGEX "^-I")
  list(TRANSFORM include_directories REPLACE "^-I" "")
  set(link_options ${words})
  list(FILTER link_options INCLUDE REGEX "^-(L|l|Wl,)")
  list(FILTER link_options EXCLUDE REGEX "^-l(mpi_cxx|mpichcxx)$")  # the C++ bindings, which MPI 3 removed
  set(${include_directories_variable} ${include_directories} PARENT_SCOPE)
  set(${link_options_variable} ${link_options} PARENT_SCOPE)
endfunction()

# The command line that starts a job of one flavour, up to the program, with "@RANKS@" for their number. Machines that
# run tests have few cores: ranks must not be bound to one, nor spin for long.
function(tulle_mpi_launcher flavour launcher_variable)
  if(flavour STREQUAL "primary")
    set(mpirun ${MPIEXEC_EXECUTABLE})
  else()
    set(mpirun ${TULLE_MPIRUN_${flavour}})
  endif()
  set(launcher ${mpirun} -n @RANKS@)
  execute_process(COMMAND ${mpirun} --version OUTPUT_VARIABLE version ERROR_VARIABLE version)
  if(version MATCHES "OpenRTE|Open MPI")
    list(APPEND launcher --oversubscribe --allow-run-as-root --bind-to none --mca mpi_yield_when_idle 1
                --mca btl_base_warn_component_unused 0)
  endif()
  set(${launcher_variable} ${launcher} PARENT_SCOPE)
endfunction()

# The same for a job of which ranks may die without the launcher ending the others; a rank's program and its arguments
# follow. These flags alone are not enough: a shell between the launcher and the rank outlives it, because MPICH 4.0
# signals and ends the survivors in spite of its flag. Empty where nobody knows the flavour's flag.
function(tulle_mpi_keeping_launcher flavour ranks launcher_variable)
  set(flag_openmpi --enable-recovery)
  set(flag_mpich -disable-auto-cleanup)
  set(launcher "")
  if(DEFINED flag_${flavour})
    tulle_mpi_launcher(${flavour} launcher)
    string(REPLACE "@RANKS@" ${ranks} launcher "${launcher}")
    list(INSERT launcher 1 ${flag_${flavour}})
    list(APPEND launcher sh -c "trap : USR1 && \"$@\" || true" rank)
  endif()
  set(${launcher_variable} "${launcher}" PARENT_SCOPE)
endfunction()

# tulle_mpi_test(<name> SOURCES ... RANKS 1 2 ... [LIBRARIES <target>...] [ENVIRONMENT VAR=value...] [TIMEOUT s])
#
# GoogleTest cases that all ranks of an MPI job run together. For each flavour it builds <name>_<flavour>, with the main
# function of tests/comm_mpi/mpi_test_main.cpp, and for each number of ranks registers <name>.<flavour>.np<ranks>, which
# gets 60 seconds unless TIMEOUT says otherwise; a job that takes longer is killed after its stacks are printed.
# LIBRARIES must not depend on tulle_mpi: the flavour's own is added. Called again with the same SOURCES it needs a new
# name. Without MPI it does nothing.
function(tulle_mpi_test name)
  cmake_parse_arguments(TEST "" "TIMEOUT" "SOURCES;RANKS;LIBRARIES;ENVIRONMENT" ${ARGN})
  if(NOT TULLE_HAVE_MPI)
    message(STATUS "MPI tests: ${name} is left out, there is no MPI")
    return()
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 60)
  endif()
  math(EXPR outer_timeout "${TEST_TIMEOUT} + 60")  # for the stacks

  tulle_find_mpi_flavours()
  get_property(flavours GLOBAL PROPERTY TULLE_MPI_FLAVOURS)
  foreach(flavour IN LISTS flavours)
    set(target ${name}_${flavour})
    add_executable(${target} ${TEST_SOURCES})
    target_link_libraries(${target} PRIVATE ${TEST_LIBRARIES} tulle_mpi_test_main_${flavour})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
    tulle_compile_options(${target})
    tulle_mpi_launcher(${flavour} launcher_template)
    foreach(ranks IN LISTS TEST_RANKS)
      string(REPLACE "@RANKS@" ${ranks} launcher "${launcher_template}")
      set(test ${name}.${flavour}.np${ranks})
      add_test(NAME ${test} COMMAND ${PROJECT_SOURCE_DIR}/tests/comm_mpi/run_bounded.sh ${TEST_TIMEOUT}
                                    ${launcher} $<TARGET_FILE:${target}>)
      set_tests_properties(${test} PROPERTIES TIMEOUT ${outer_timeout} PROCESSORS ${ranks} LABELS "mpi;${flavour}"
                                              ENVIRONMENT "UCX_LOG_LEVEL=error;${TEST_ENVIRONMENT}")
    endforeach()
  endforeach()
endfunction()

# Looks for flavours once, and gives each its library with the main function of tests.
function(tulle_find_mpi_flavours)
  get_property(flavours GLOBAL PROPERTY TULLE_MPI_FLAVOURS)
  if(flavours)
    return()
  endif()
  tulle_add_mpi_flavour(openmpi)
  tulle_add_mpi_flavour(mpich)
  get_property(flavours GLOBAL PROPERTY TULLE_MPI_FLAVOURS)
  if(NOT flavours)
    add_library(tulle_mpi_primary ALIAS tulle_mpi)
    set_property(GLOBAL PROPERTY TULLE_MPI_FLAVOURS primary)
    set(flavours primary)
  endif()
  message(STATUS "MPI tests: run on ${flavours}")
  find_package(GTest REQUIRED)
  foreach(flavour IN LISTS flavours)
    set(target tulle_mpi_test_main_${flavour})
    add_library(${target} STATIC EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/comm_mpi/mpi_test_main.cpp)
    target_link_libraries(${target} PUBLIC tulle_mpi_${flavour} GTest::gtest)
    tulle_compile_options(${target})
  endforeach()
endfunction()
