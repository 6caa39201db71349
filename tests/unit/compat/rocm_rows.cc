// Verdict rows for code objects on AMD GPUs. Source: LLVM, "User Guide for AMDGPU Backend", Target
// ID and Generic Processor tables.
// SPDX-License-Identifier: Apache-2.0
#include "table.h"

namespace opdock::test {

// clang-format off: one row per line
INSTANTIATE_TEST_SUITE_P(
    CodeObject, VerdictTable,
    testing::Values(
        // CDNA and before
        ROW("rocm gfx906@5.2", "rocm=5.2 gfx906:sramecc+:xnack-", "usable gfx906"),
        ROW("rocm gfx908@5.2", "rocm=5.2 gfx908:sramecc+:xnack-", "usable gfx908"),
        ROW("rocm gfx90a@5.2", "rocm=5.2 gfx90a:sramecc+:xnack-", "usable gfx90a"),
        ROW("rocm gfx942@6.2", "rocm=6.2 gfx942:sramecc+:xnack-", "usable gfx942"),
        ROW("rocm gfx950@7.0", "rocm=7.0 gfx950:sramecc+:xnack-", "usable gfx950"),
        ROW("rocm gfx90a@6.2", "rocm=6.2 gfx908:sramecc+:xnack-", "rejected arch-mismatch"),
        ROW("rocm gfx908@6.2", "rocm=6.2 gfx90a:sramecc+:xnack-", "rejected arch-mismatch"),
        ROW("rocm gfx90a@6.2", "rocm=6.2 gfx942:sramecc+:xnack-", "rejected arch-mismatch"),
        ROW("rocm gfx942@6.2", "rocm=6.2 gfx950:sramecc+:xnack-", "rejected arch-mismatch"),
        ROW("rocm gfx900@6.2", "rocm=6.2 gfx906:sramecc+:xnack-", "rejected arch-mismatch"),
        // RDNA
        ROW("rocm gfx1010@5.2", "rocm=5.2 gfx1010:xnack-", "usable gfx1010"),
        ROW("rocm gfx1030@5.2", "rocm=5.2 gfx1030", "usable gfx1030"),
        ROW("rocm gfx1030@5.2", "rocm=5.2 gfx1031", "rejected arch-mismatch"),
        ROW("rocm gfx1100@6.2", "rocm=6.2 gfx1100", "usable gfx1100"),
        ROW("rocm gfx1100@6.2", "rocm=6.2 gfx1101", "rejected arch-mismatch"),
        ROW("rocm gfx1151@6.4", "rocm=6.4 gfx1151", "usable gfx1151"),
        ROW("rocm gfx1200@6.4", "rocm=6.4 gfx1201", "rejected arch-mismatch"),
        ROW("rocm gfx1201@6.4", "rocm=6.4 gfx1201", "usable gfx1201"),
        ROW("rocm gfx1030@6.2 gfx1100@6.2 gfx90a@6.2", "rocm=6.2 gfx1100", "usable gfx1100"),
        // the driver's version does not matter to a code object
        ROW("rocm gfx1100@7.0", "rocm=6.0 gfx1100", "usable gfx1100"),
        ROW("rocm gfx1100", "rocm=6.0 gfx1100", "usable gfx1100"),
        ROW("rocm gfx1100@6.2", "gfx1100", "usable gfx1100"),
        // a processor that does not exist yet
        ROW("rocm gfx1300@8.0", "rocm=8.0 gfx1300", "usable gfx1300"),
        ROW("rocm gfx1300@8.0", "rocm=8.0 gfx1301", "rejected arch-mismatch")));

INSTANTIATE_TEST_SUITE_P(
    FeatureFlags, VerdictTable,
    testing::Values(
        ROW("rocm gfx90a:xnack-@6.2", "rocm=6.2 gfx90a:sramecc+:xnack-", "usable gfx90a:xnack-"),
        ROW("rocm gfx90a:xnack+@6.2", "rocm=6.2 gfx90a:sramecc+:xnack-", "rejected feature-flags"),
        ROW("rocm gfx90a:xnack+@6.2", "rocm=6.2 gfx90a:sramecc+:xnack+", "usable gfx90a:xnack+"),
        ROW("rocm gfx90a:xnack-@6.2", "rocm=6.2 gfx90a:sramecc+:xnack+", "rejected feature-flags"),
        ROW("rocm gfx90a:sramecc+@6.2", "rocm=6.2 gfx90a:sramecc+:xnack-", "usable gfx90a:sramecc+"),
        ROW("rocm gfx90a:sramecc-@6.2", "rocm=6.2 gfx90a:sramecc+:xnack-", "rejected feature-flags"),
        ROW("rocm gfx90a:sramecc-@6.2", "rocm=6.2 gfx90a:sramecc-:xnack-", "usable gfx90a:sramecc-"),
        ROW("rocm gfx90a:sramecc+:xnack-@6.2", "rocm=6.2 gfx90a:sramecc+:xnack-", "usable gfx90a:sramecc+:xnack-"),
        ROW("rocm gfx90a:sramecc+:xnack+@6.2", "rocm=6.2 gfx90a:sramecc+:xnack-", "rejected feature-flags"),
        ROW("rocm gfx90a:sramecc-:xnack-@6.2", "rocm=6.2 gfx90a:sramecc+:xnack-", "rejected feature-flags"),
        ROW("rocm gfx906:xnack-@6.2", "rocm=6.2 gfx906:sramecc+:xnack-", "usable gfx906:xnack-"),
        ROW("rocm gfx942:xnack+@6.2", "rocm=6.2 gfx942:sramecc+:xnack-", "rejected feature-flags"),
        ROW("rocm gfx1010:xnack-@6.2", "rocm=6.2 gfx1010:xnack-", "usable gfx1010:xnack-"),
        // a flag that the GPU does not report cannot be relied on
        ROW("rocm gfx90a:xnack-@6.2", "rocm=6.2 gfx90a", "rejected feature-flags"),
        // both settings are packed, as hipcc does
        ROW("rocm gfx90a:xnack+@6.2 gfx90a:xnack-@6.2", "rocm=6.2 gfx90a:sramecc+:xnack-", "usable gfx90a:xnack-"),
        ROW("rocm gfx90a@6.2 gfx90a:xnack-@6.2", "rocm=6.2 gfx90a:sramecc+:xnack-", "usable gfx90a:xnack-"),
        ROW("rocm gfx90a@6.2 gfx90a:xnack+@6.2", "rocm=6.2 gfx90a:sramecc+:xnack-", "usable gfx90a"),
        ROW("rocm gfx90a:xnack+@6.2 gfx908@6.2", "rocm=6.2 gfx90a:sramecc+:xnack-", "rejected arch-mismatch feature-flags"),
        // not target IDs
        ROW("rocm gfx90a:tgsplit+@6.2", "rocm=6.2 gfx90a:sramecc+:xnack-", "rejected arch-mismatch"),
        ROW("rocm gfx90a:xnack@6.2", "rocm=6.2 gfx90a:sramecc+:xnack-", "rejected arch-mismatch")));

INSTANTIATE_TEST_SUITE_P(
    Generic, VerdictTable,
    testing::Values(
        ROW("rocm gfx9-generic@6.4", "rocm=6.4 gfx900:xnack-", "usable gfx9-generic"),
        ROW("rocm gfx9-generic@6.4", "rocm=6.4 gfx906:sramecc+:xnack-", "usable gfx9-generic"),
        ROW("rocm gfx9-generic@6.4", "rocm=6.4 gfx90c:xnack-", "usable gfx9-generic"),
        ROW("rocm gfx9-generic@6.4", "rocm=6.4 gfx908:sramecc+:xnack-", "rejected arch-mismatch"),
        ROW("rocm gfx9-generic@6.4", "rocm=6.4 gfx90a:sramecc+:xnack-", "rejected arch-mismatch"),
        ROW("rocm gfx9-generic@6.4", "rocm=6.4 gfx942:sramecc+:xnack-", "rejected arch-mismatch"),
        ROW("rocm gfx9-4-generic@6.4", "rocm=6.4 gfx942:sramecc+:xnack-", "usable gfx9-4-generic"),
        ROW("rocm gfx9-4-generic@6.4", "rocm=6.4 gfx950:sramecc+:xnack-", "usable gfx9-4-generic"),
        ROW("rocm gfx9-4-generic@6.4", "rocm=6.4 gfx90a:sramecc+:xnack-", "rejected arch-mismatch"),
        ROW("rocm gfx9-4-generic:xnack+@6.4", "rocm=6.4 gfx942:sramecc+:xnack-", "rejected feature-flags"),
        ROW("rocm gfx10-1-generic@6.4", "rocm=6.4 gfx1010:xnack-", "usable gfx10-1-generic"),
        ROW("rocm gfx10-1-generic@6.4", "rocm=6.4 gfx1012:xnack-", "usable gfx10-1-generic"),
        ROW("rocm gfx10-1-generic@6.4", "rocm=6.4 gfx1030", "rejected arch-mismatch"),
        ROW("rocm gfx10-3-generic@6.4", "rocm=6.4 gfx1030", "usable gfx10-3-generic"),
        ROW("rocm gfx10-3-generic@6.4", "rocm=6.4 gfx1036", "usable gfx10-3-generic"),
        ROW("rocm gfx10-3-generic@6.4", "rocm=6.4 gfx1010:xnack-", "rejected arch-mismatch"),
        ROW("rocm gfx11-generic@6.4", "rocm=6.4 gfx1100", "usable gfx11-generic"),
        ROW("rocm gfx11-generic@6.4", "rocm=6.4 gfx1151", "usable gfx11-generic"),
        ROW("rocm gfx11-generic@6.4", "rocm=6.4 gfx1201", "rejected arch-mismatch"),
        ROW("rocm gfx12-generic@6.4", "rocm=6.4 gfx1201", "usable gfx12-generic"),
        ROW("rocm gfx12-generic@6.4", "rocm=6.4 gfx1100", "rejected arch-mismatch"),
        ROW("rocm gfx12-generic@6.4", "rocm=7.0 gfx1250", "rejected arch-mismatch"),
        ROW("rocm gfx11-generic@6.4 gfx1100@6.4", "rocm=6.4 gfx1100", "usable gfx1100"),
        ROW("rocm gfx1100@6.4 gfx11-generic@6.4", "rocm=6.4 gfx1101", "usable gfx11-generic"),
        ROW("rocm gfx99-generic@6.4", "rocm=6.4 gfx1100", "rejected arch-mismatch")));
// clang-format on

}  // namespace opdock::test
