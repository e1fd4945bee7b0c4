#include "cli/bench/bench_report.hpp"

#include <gtest/gtest.h>

namespace tulle::cli {
namespace {

TEST(BenchReport, AFailedRowIsShownAndStored) {
  const std::vector<measure::Row> rows = {{.algorithm = "dense_ring",
                                           .chosen = "dense_ring",
                                           .is_dense = true,
                                           .bytes_sent_max = 1,
                                           .bytes_sent_total = 1,
                                           .failure = "is not the serial sum"}};
  const BenchRun run{.spec = {.dimension = 1000}, .transport = "sim", .ranks = 3};
  EXPECT_NE(BenchTable(run).rows(rows).find("FAILED: is not the serial sum"), std::string::npos);
  EXPECT_NE(bench_json(run, rows[0]).find(R"("seconds_median":null)"), std::string::npos);
  EXPECT_NE(bench_json(run, rows[0]).find(R"("verified":false)"), std::string::npos);
}

TEST(BenchReport, SpeedUpsAreMeasuredAgainstMpiOrElseTheFastestDenseRow) {
  measure::Row slow{.algorithm = "dense_ring", .is_dense = true, .seconds = Quartiles{2, 2, 2}};
  measure::Row fast{.algorithm = "dense_rabenseifner", .is_dense = true, .seconds = Quartiles{1, 1, 1}};
  measure::Row sparse{.algorithm = "ssar_split_allgather", .seconds = Quartiles{0.1, 0.1, 0.1}};
  measure::Row mpi{.algorithm = "mpi_native", .is_dense = true, .seconds = Quartiles{3, 3, 3}};
  EXPECT_EQ(reference_of(std::vector{sparse}), nullptr);
  const std::vector dense = {sparse, slow, fast}, with_mpi = {sparse, slow, fast, mpi};
  EXPECT_EQ(reference_of(dense), &dense[2]);
  EXPECT_EQ(reference_of(with_mpi), &with_mpi[3]);
}

}  // namespace
}  // namespace tulle::cli
