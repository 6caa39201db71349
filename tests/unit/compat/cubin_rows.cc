// Cubins on NVIDIA GPUs. Source: NVIDIA, "CUDA C++ Programming Guide", binary compatibility: a
// cubin runs on its own compute capability and on later minors of the same major.
// SPDX-License-Identifier: Apache-2.0
#include "table.h"

namespace opdock::test {

INSTANTIATE_TEST_SUITE_P(Cubin, VerdictTable,
                         testing::Values(
                             // Pascal
                             ROW("cuda sm_60@12.9", "driver=12.4 sm_60", "usable sm_60"),
                             ROW("cuda sm_60@12.9", "driver=12.4 sm_61", "usable sm_60"),
                             ROW("cuda sm_61@12.9", "driver=12.4 sm_60", "rejected arch-mismatch"),
                             ROW("cuda sm_61@12.9", "driver=12.4 sm_61", "usable sm_61"),
                             ROW("cuda sm_52@12.9", "driver=12.4 sm_60", "rejected arch-mismatch"),
                             ROW("cuda sm_50@12.9", "driver=12.4 sm_52", "usable sm_50"),
                             // Volta and Turing are one major
                             ROW("cuda sm_70@12.9", "driver=12.4 sm_70", "usable sm_70"),
                             ROW("cuda sm_70@12.9", "driver=12.4 sm_75", "usable sm_70"),
                             ROW("cuda sm_75@12.9", "driver=12.4 sm_70", "rejected arch-mismatch"),
                             ROW("cuda sm_75@12.9", "driver=12.4 sm_75", "usable sm_75"),
                             ROW("cuda sm_60@12.9 sm_61@12.9", "driver=12.4 sm_70",
                                 "rejected arch-mismatch")));

}  // namespace opdock::test
