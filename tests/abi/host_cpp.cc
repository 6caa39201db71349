// A C++ program that uses the host through opdock.hpp. Returns 0 if every check passes.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <opdock/opdock.hpp>

static int failures = 0;
static void check(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s\n", what);
  ++failures;
}

int main(int, char** argv) {
  try {
    opdock::Runtime runtime{std::string(argv[1])};
    opdock::Function axpy = runtime.function("abi_axpy");
    check(axpy.schema().find("abi_axpy(") == 0, "schema");
    check(runtime.list_json().find("abi_axpy") != std::string::npos, "list_json");
    std::vector<float> x(6, 2), y(6, 1), z(6);
    const float* constant = y.data();
    opdock::TensorView tx(x.data(), {2, 3}), ty(constant, {2, 3}), tz(z.data(), {2, 3});
    opdock::ResultList results = axpy(tx, ty);
    check(results.size() == 1 && results[0].data<float>()[5] == 3, "a call with defaults");
    check(results[0].ndim() == 2 && results[0].size(1) == 3, "the result's shape");
    axpy.into({tz}, nullptr, tx, results[0], opdock::named("a", 10));
    check(z[0] == 23, "a call into an output");
    axpy.prepare({});
    try {
      axpy(tx);
      check(false, "a missing argument passes");
    } catch (const opdock::Error& error) {
      check(error.status() == OPDOCK_INVALID_ARGUMENT, "status");
      check(std::string(error.what()).find("'y'") != std::string::npos, error.what());
    }
    try {
      runtime.function("no_such_op");
      check(false, "an unknown op is found");
    } catch (const opdock::Error& error) {
      check(error.status() == OPDOCK_NOT_FOUND, "status of an unknown op");
    }
  } catch (const std::exception& error) {
    check(false, error.what());
  }
  return failures == 0 ? 0 : 1;
}
