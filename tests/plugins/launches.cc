// SPDX-License-Identifier: Apache-2.0
#include "launches.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "manifest/manifest.h"

namespace opdock_test {

std::vector<int64_t> launch_lengths() {
  return {1,    31,   32,   33,   255,  256,   257,   264,   512,   520,   1000,  1024,
          2048, 4096, 4104, 8192, 8200, 14432, 16384, 16392, 32768, 32776, 65536, 65537};
}

namespace {

// Returns the kernel names in the plugin's plugin.toml, with lists expanded.
const std::set<std::string>& kernels_of(const std::string& plugin) {
  static std::map<std::string, std::set<std::string>> known;
  std::set<std::string>& names = known[plugin];
  if (!names.empty()) return names;
  std::vector<opdock::Reason> mistakes;
  const std::string path = OPDOCK_SOURCE_PLUGINS "/" + plugin + "/plugin.toml";
  const std::optional<opdock::Manifest> manifest = opdock::read_manifest(path, &mistakes);
  EXPECT_TRUE(manifest && manifest->device) << path;
  if (manifest && manifest->device)
    names.insert(manifest->device->kernels.begin(), manifest->device->kernels.end());
  return names;
}

int64_t bytes_of(Type type) {
  return type == Type::kFloat32 ? 4 : 2;
}

}  // namespace

void expect_covers(const Launch& launch, const std::string& plugin, Type type, int64_t length,
                   int64_t rows, int64_t warp, bool misaligned, int64_t most_lanes) {
  const std::string what = launch.kernel + " for length " + std::to_string(length);
  EXPECT_TRUE(kernels_of(plugin).contains(launch.kernel)) << what;
  const int64_t threads = launch.how.block[0];
  EXPECT_EQ(threads % warp, 0) << what;
  EXPECT_GE(threads, warp) << what;
  EXPECT_EQ(launch.how.block[1] * launch.how.block[2], 1u);
  EXPECT_EQ(launch.how.grid[1] * launch.how.grid[2], 1u);
  EXPECT_EQ(launch.how.num_args, 1u);
  const int64_t bytes = bytes_of(type), vectors = length * bytes / 16;
  const std::string arguments = launch.kernel.substr(launch.kernel.find('<'));
  const bool has_edges = arguments.ends_with(", 1>");
  const bool is_whole = !misaligned && length * bytes % 16 == 0;
  // vectors per thread; meaningless for long_rows
  const int64_t held = std::atoi(arguments.c_str() + arguments.find(", ") + 2);
  if (launch.kernel.find("narrow_rows") != std::string::npos) {
    EXPECT_EQ(threads, 128) << what;
    EXPECT_LE(vectors, held * most_lanes) << what;
    EXPECT_GE(launch.how.grid[0] * 128 * held, rows * vectors) << what;
    EXPECT_TRUE(has_edges || is_whole) << what;
    return;
  }
  const int64_t cluster = std::max<int64_t>(1, launch.how.cluster[0]);
  EXPECT_LE(threads, 1024) << what;
  EXPECT_EQ(threads & (threads - 1), 0) << what << ": a power of two, for the reductions";
  EXPECT_EQ(launch.how.grid[0], rows * cluster) << what;
  if (launch.kernel.find("block_rows") == std::string::npos) return;
  EXPECT_TRUE(has_edges || is_whole) << "16-byte loads: " << what;
  EXPECT_GE(cluster * threads * held, vectors) << what;
}

bool is_same_launch(const Launch& a, const Launch& b) {
  const auto shape = [](const Launch& launch) {
    const opdock_launch& how = launch.how;
    return std::tuple(launch.kernel, how.grid[0], how.grid[1], how.block[0], how.cluster[0],
                      how.flags);
  };
  return shape(a) == shape(b);
}

}  // namespace opdock_test
