// SPDX-License-Identifier: Apache-2.0
#include "chain_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/installed.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Program& program_of(void* context) {
  return *static_cast<Program*>(context);
}

int32_t cancelled(void* context) {
  const Program& program = program_of(context);
  return program.cancelled && program.cancelled() ? 1 : 0;
}

void progress(void* context, const char* text, double) {
  Program& program = program_of(context);
  {
    const std::lock_guard lock(program.telling);
    program.told.push_back(text);
  }
  if (program.on_progress) program.on_progress(text);
}

void log(void* context, int32_t, const char* message) {
  program_of(context).on_log(message);
}

void waiting(void* context, int32_t begins) {
  program_of(context).waits += begins != 0 ? 1 : -1;
}

int32_t has_reference(void* context, const char* op, const char*) {
  return program_of(context).references.contains(op) ? 1 : 0;
}

opdock_status open_reference(void* context, opdock_function*, opdock_device, const char* file,
                             const char* record, void** out, char* error, uint32_t error_size) {
  Program& program = program_of(context);
  const Json told = Json::parse(record);
  program.records.push_back(told);
  program.files.push_back(file == nullptr ? "" : file);
  *out = &program;
  const opdock_status status = program.references.at(told.at("op"));
  if (status != OPDOCK_OK) std::snprintf(error, error_size, "no torch here");
  return status;
}

opdock_status run_reference(void*, void* reference, const opdock_call*, const opdock_value*,
                            uint32_t, opdock_value*, uint32_t) {
  return static_cast<Program*>(reference)->run_status;
}

constexpr opdock_references kReferences = {sizeof(opdock_references), 0, has_reference,
                                           open_reference, run_reference};

}  // namespace

bool Outcome::has(const std::string& code) const {
  return std::any_of(reasons.begin(), reasons.end(),
                     [&](const Json& reason) { return reason.at("code") == code; });
}

ChainFixture::ChainFixture() {
  for (const char* name :
       {"CC", "CXX", "MESON", "NINJA", "VIRTUAL_ENV", "CONDA_PREFIX", "OPDOCK_BUILD", "OPDOCK_JIT",
        "OPDOCK_FALLBACK", "OPDOCK_PLUGIN_PATH", "OPDOCK_ADD_PLUGIN_PATH", "OPDOCK_PLUGINS_SELECT",
        "OPDOCK_PLUGINS_DISABLE", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME",
        "TORCH_CUDA_ARCH_LIST"}) {
    unsetenv(name);
  }
  use_installed(find_installed(std::getenv("OPDOCK_TEST_LIBDIR")));
  for (const char* name : {"bin", "plugins", "home"}) fs::create_directory(path(name));
  setenv("PATH", path("bin").c_str(), 1);
  setenv("HOME", path("home").c_str(), 1);
  setenv("OPDOCK_CACHE_DIR", path("cache").c_str(), 1);
  tool("c++", "echo 'c++ 1.2.3'");
  tool("cc", "echo 'cc 1.2.3'");
  tool("meson", "/bin/mkdir -p \"$4\"; echo \"$3\" > $TOP/wrapper");
  // The plugin's name comes from the folder's declaration, of which the wrapper project has a copy.
  tool("ninja",
       "echo build >> $TOP/builds\n/bin/mkdir -p \"$2/plugins\"\n"
       "name=$(/bin/sed -n 's/^name = \"\\(.*\\)\"/\\1/p' $(/usr/bin/find \"$(/usr/bin/dirname "
       "\"$2\")\" -name plugin.toml | /usr/bin/head -n 1))\n"
       "made=$name; [ -e $TOP/made ] && read made < $TOP/made\n"
       "/bin/cp " +
           std::string(CASE_PLUGINS) + "/$made.so \"$2/plugins/$name.so\"");
}

ChainFixture::~ChainFixture() = default;

void ChainFixture::tool(const std::string& name, const std::string& body) {
  top_.write("bin/" + name, "#!/bin/sh\nTOP='" + path() + "'\n" + body + "\n");
  chmod(path("bin/" + name).c_str(), 0700);
}

void ChainFixture::remove_tool(const std::string& name) {
  fs::remove(path("bin/" + name));
}

std::string ChainFixture::add_source(const std::string& name, const std::string& version,
                                     const std::string& extra, const std::string& folder) {
  const std::string where = "plugins/" + (folder.empty() ? name : folder);
  fs::create_directories(path(where));
  top_.write(where + "/code.c", "int code;\n");
  top_.write(where + "/plugin.toml",
             "name = \"" + name + "\"\nversion = \"" + version +
                 "\"\nlicense = \"Apache-2.0\"\nsources = [\"code.c\"]\n" + extra +
                 "[[op]]\nschema = \"" + name +
                 "(Tensor x) -> Tensor\"\ndoc = \"Nothing.\"\nshape = [\"like x\"]\n"
                 "devices = [\"cpu\"]\ndtypes = [\"float32\"]\nflags = [\"thread-safe\"]\n");
  return path(where);
}

size_t ChainFixture::builds() const {
  const std::string text = contents(path("builds"));
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

RuntimePtr ChainFixture::runtime(Program* program, const std::string& plugin_path) {
  const std::string places = plugin_path.empty() ? path("plugins") : plugin_path;
  opdock_options options{};
  options.struct_size = sizeof options;
  options.plugin_path = places.c_str();
  if (program != nullptr) {
    options.build = program->build;
    options.jit = program->jit;
    options.fallback = program->fallback;
    options.hooks_context = program;
    options.progress = progress;
    options.cancelled = cancelled;
    options.waiting = waiting;
    if (program->has_runner) options.references = &kReferences;
    if (program->on_log) {
      options.log = log;
      options.log_context = program;
    }
  }
  std::array<char, 4096> error{};
  opdock_runtime* made = nullptr;
  EXPECT_EQ(opdock_runtime_create(&options, &made, error.data(), error.size()), OPDOCK_OK)
      << error.data();
  return RuntimePtr(made);
}

namespace {

// No reason repeats another one's text, as in "found found no driver, wanted one, wanted a driver".
void expect_plain(const Json& reasons) {
  const auto count = [](const std::string& text, const std::string& part) {
    size_t times = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++times;
    return times;
  };
  for (const Json& reason : reasons) {
    const std::string text = reason.at("text"), found = reason.at("found");
    EXPECT_EQ(count(text, "found found"), 0u) << text;
    EXPECT_LE(count(text, ", wanted "), count(found, "\n") + 1) << text;
    for (const Json& other : reasons) {
      const std::string code = std::string(other.at("code")) + ": ";
      EXPECT_EQ(found.find(code), found.npos) << text;
    }
  }
}

}  // namespace

Outcome ChainFixture::resolve(opdock_runtime* runtime, const std::string& op,
                              opdock_device device) {
  Outcome outcome;
  std::array<char, 16384> error{};
  opdock_function* function = nullptr;
  outcome.status = opdock_get_function(runtime, op.c_str(), &function, error.data(), error.size());
  if (outcome.status == OPDOCK_OK) {
    outcome.status = opdock_prepare(function, device, error.data(), error.size());
  }
  outcome.text = error.data();
  char* text = nullptr;
  EXPECT_EQ(opdock_take_reasons_json(&text, nullptr, 0), OPDOCK_OK);
  outcome.reasons = Json::parse(text);
  opdock_free(text);
  expect_plain(outcome.reasons);
  return outcome;
}

Outcome ChainFixture::call(opdock_runtime* runtime, const std::string& op) {
  Outcome outcome;
  std::array<char, 16384> error{};
  opdock_function* function = nullptr;
  outcome.status = opdock_get_function(runtime, op.c_str(), &function, error.data(), error.size());
  if (outcome.status == OPDOCK_OK) {
    float in[4] = {}, out[4] = {};
    int64_t shape[1] = {4}, strides[1] = {1};
    opdock_tensor x{in, {OPDOCK_CPU, 0}, 1, {2, 32, 1}, shape, strides, 0};
    opdock_tensor y{out, {OPDOCK_CPU, 0}, 1, {2, 32, 1}, shape, strides, 0};
    opdock_value value{};
    value.tag = OPDOCK_TAG_TENSOR;
    value.as.tensor = &x;
    opdock_value result = value;
    result.as.tensor = &y;
    outcome.status = opdock_invoke(function, nullptr, &value, 1, &result, 1, error.data(),
                                   static_cast<uint32_t>(error.size()));
  }
  outcome.text = error.data();
  return outcome;
}

Json ChainFixture::explain(opdock_runtime* runtime, const std::string& name) {
  char* text = nullptr;
  EXPECT_EQ(opdock_explain_json(runtime, name.c_str(), &text, nullptr, 0), OPDOCK_OK);
  Json json = Json::parse(text);
  opdock_free(text);
  return json;
}

Json ChainFixture::step(const Json& explanation, const std::string& name) {
  for (const Json& one : explanation.at("chain").at(0).at("steps")) {
    if (one.at("step") == name) return one;
  }
  ADD_FAILURE() << "no step " << name << " in " << explanation.dump(2);
  return {};
}

}  // namespace opdock::testing
