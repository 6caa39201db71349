// SPDX-License-Identifier: Apache-2.0
#include "manifest/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string_view>

#include "base/files.h"
#include "base/version.h"
#include "compat/range.h"
#include "manifest/build_table.h"
#include "manifest/formula_gradients.h"
#include "manifest/kernel_names.h"
#include "manifest/ops.h"
#include "manifest/toml_table.h"

namespace opdock {

static const std::vector<std::string> kLibraryNames = {"torch", "cudart", "python", "rocm"};

// Identifiers become parts of file and symbol names.
static bool is_identifier(std::string_view text) {
  if (text.empty() || text.size() > 64) return false;
  for (char c : text)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'))
      return false;
  return text[0] < '0' || text[0] > '9';
}

// Returns whether the file can be opened. It is not read here: declared files may be large.
static bool is_readable(const std::filesystem::path& path) {
  std::error_code failed;
  return std::filesystem::is_regular_file(path, failed) && std::ifstream(path).is_open();
}

// Checks that files are readable and inside the plugin's folder, because they are copied with it
// when it is built on demand.
static void check_files(TomlTable* table, std::string_view key, const Manifest& manifest,
                        const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::filesystem::path path(file);
    bool leaves = path.is_absolute() || path.lexically_normal().string().starts_with("..");
    if (leaves)
      table->mistake(key, table->place(key, file), fmt::format("\"{}\"", file),
                     "a path inside the plugin's folder");
    else if (!is_readable(manifest.folder() / path))
      table->mistake(key, table->place(key, file), fmt::format("no readable file \"{}\"", file),
                     fmt::format("one in {}", manifest.folder().string()));
  }
}

static void read_device(const toml::table& toml, Manifest* manifest,
                        std::vector<Mistake>* mistakes) {
  TomlTable table(toml, "[device]", mistakes);
  table.only({"sources", "kernels"});
  DeviceDecl device;
  device.line = table.place().line;
  device.sources = table.texts("sources", true);
  check_files(&table, "sources", *manifest, device.sources);
  device.kernels = read_kernel_names(&table, manifest->text);
  // The image table has 48 bytes for a name.
  for (const std::string& source : device.sources)
    if (std::filesystem::path(source).filename().string().size() > 47)
      table.mistake("sources", table.place("sources", source),
                    fmt::format("the file name \"{}\"", source), "at most 47 bytes");
  bool used = false;
  for (const OpDecl& op : manifest->ops)
    for (const std::string& name : op.devices) used |= name != "cpu";
  if (!used)
    table.mistake(table.place(), "device code",
                  "an op with \"cuda\" or \"rocm\" in its \"devices\"");
  manifest->device = std::move(device);
}

static void read_requires(const toml::table& toml, Manifest* manifest,
                          std::vector<Mistake>* mistakes) {
  TomlTable table(toml, "[requires]", mistakes);
  table.only(kLibraryNames);
  for (const std::string& library : kLibraryNames) {
    std::string range = table.text(library, false);
    if (range.empty()) continue;
    if (!VersionRange::parse(range))
      table.mistake(library, table.place(library), fmt::format("\"{}\"", range),
                    "comparisons such as \">=2.11,<3\" or \"==2.11.*\"");
    manifest->libraries.push_back({library, range});
  }
}

// Returns whether some op is not a formula, and so needs sources.
static bool has_own_code(const toml::table& root) {
  const toml::array* const ops = root["op"].as_array();
  if (ops == nullptr) return true;
  for (const toml::node& op : *ops) {
    const toml::table* const table = op.as_table();
    const bool is_formula =
        table != nullptr && (table->contains("formula") || table->contains("gradient-of"));
    if (!is_formula) return true;
  }
  return false;
}

static void read_head(const toml::table& root, TomlTable* table, Manifest* manifest) {
  table->only(
      {"name", "version", "license", "sources", "reference", "op", "device", "requires", "build"});
  manifest->name = table->text("name", true);
  if (!manifest->name.empty() && !is_identifier(manifest->name))
    table->mistake("name", table->place("name"), fmt::format("\"{}\"", manifest->name),
                   "letters, digits and '_', at most 64, no digit first");
  manifest->version = table->text("version", true);
  if (!manifest->version.empty() &&
      (!Version::parse(manifest->version) ||
       manifest->version.find_first_not_of("0123456789.") != std::string::npos))
    table->mistake("version", table->place("version"), fmt::format("\"{}\"", manifest->version),
                   "dotted numbers such as \"0.1.0\"");
  manifest->license = table->text("license", true);
  manifest->sources = table->texts("sources", has_own_code(root));
  check_files(table, "sources", *manifest, manifest->sources);
  manifest->reference = table->text("reference", false);
  if (!manifest->reference.empty())
    check_files(table, "reference", *manifest, {manifest->reference});
}

// Returns a member that must be a table, or NULL. Any other type is a mistake.
static const toml::table* sub_table(const toml::table& root, const char* key, TomlTable* head) {
  const toml::node* node = root.get(key);
  if (!node) return nullptr;
  if (!node->is_table()) head->mistake(key, head->place(key), "no table", fmt::format("[{}]", key));
  return node->as_table();
}

// Escapes control characters, because text quoted from the file may hold line breaks.
static std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool is_control = static_cast<unsigned char>(c) < ' ' || c == 0x7f;
    line += is_control ? fmt::format("\\x{:02x}", c) : std::string(1, c);
  }
  return line;
}

// *mistakes gets the mistakes that are found without the schemas, *op_mistakes the others.
static void read_tables(const toml::table& root, Manifest* manifest, std::vector<Mistake>* mistakes,
                        std::vector<Mistake>* op_mistakes) {
  TomlTable head(root, "", mistakes);
  read_head(root, &head, manifest);
  const toml::node* ops = root.get("op");
  const toml::array* list = ops ? ops->as_array() : nullptr;
  if (!list || list->empty() || !list->is_homogeneous<toml::table>()) {
    head.mistake(head.place("op"), "no op", "at least one [[op]] table");
  } else {
    for (size_t i = 0; i < list->size(); ++i) {
      const toml::table& toml = *list->get(i)->as_table();
      manifest->ops.push_back(read_op(toml, i + 1, mistakes));
      if (manifest->ops.back().gradient_of.empty()) check_op(toml, manifest, i, op_mistakes);
    }
    // The ops that they are gradients of may stand behind them.
    for (size_t i = 0; i < list->size(); ++i) {
      const toml::table& toml = *list->get(i)->as_table();
      if (manifest->ops[i].gradient_of.empty()) continue;
      check_gradient_op(toml, manifest, i, op_mistakes);
    }
    if (op_mistakes->empty()) add_formula_gradients(manifest);
    for (size_t i = 0; i < list->size(); ++i)
      check_gradients(*list->get(i)->as_table(), *manifest, i, op_mistakes);
  }
  if (const toml::table* device = sub_table(root, "device", &head))
    read_device(*device, manifest, mistakes);
  if (const toml::table* libraries = sub_table(root, "requires", &head))
    read_requires(*libraries, manifest, mistakes);
  if (const toml::table* build = sub_table(root, "build", &head))
    manifest->build = read_build(*build, *manifest, mistakes);
}

bool Manifest::is_for(Backend backend) const {
  return std::any_of(ops.begin(), ops.end(), [&](const OpDecl& op) {
    return std::find(op.devices.begin(), op.devices.end(), to_text(backend)) != op.devices.end();
  });
}

bool Manifest::has_gpu_formulas() const {
  return std::any_of(ops.begin(), ops.end(), [](const OpDecl& op) { return op.is_gpu_formula(); });
}

bool OpDecl::is_gpu_formula() const {
  return !formula.empty() && std::any_of(devices.begin(), devices.end(),
                                         [](const std::string& name) { return name != "cpu"; });
}

bool OpDecl::has_cpu_code() const {
  // Compiling gradients takes as long as compiling formulas, and many are never called on a CPU.
  return !formula.empty() && !is_added &&
         std::find(devices.begin(), devices.end(), "cpu") != devices.end();
}

std::vector<Backend> Manifest::backends() const {
  std::vector<Backend> all = {Backend::kCpu, Backend::kCuda, Backend::kRocm};
  std::erase_if(all, [&](Backend backend) { return !is_for(backend); });
  return all;
}

std::optional<Manifest> look_at_manifest(const std::filesystem::path& path,
                                         std::vector<Reason>* mistakes) {
  Manifest manifest;
  manifest.path = path;
  std::optional<std::string> text = read_file(path);
  if (!text) {
    mistakes->push_back(
        make_reason(Code::kManifestInvalid, path.string() + ": no readable file", "a plugin.toml"));
    return std::nullopt;
  }
  manifest.text = *text;
  std::vector<Mistake> found, op_found;
  try {
    const toml::table root = toml::parse(manifest.text, path.string());
    read_tables(root, &manifest, &found, &op_found);
  } catch (const toml::parse_error& problem) {
    const toml::source_position& at = problem.source().begin;
    found = {{{at.line, at.column},
              fmt::format("no TOML ({})", problem.description()),
              "lines such as `name = \"softmax\"`, and text in quotes"}};
  }
  const bool is_readable = found.empty();
  found.insert(found.end(), op_found.begin(), op_found.end());
  std::stable_sort(found.begin(), found.end(), [](const Mistake& a, const Mistake& b) {
    return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
  });
  for (const Mistake& mistake : found)
    mistakes->push_back(make_reason(Code::kManifestInvalid,
                                    fmt::format("{}:{}:{}: {}", path.string(), mistake.place.line,
                                                mistake.place.column, one_line(mistake.found)),
                                    one_line(mistake.wanted)));
  if (!is_readable) return std::nullopt;
  return manifest;
}

std::optional<Manifest> read_manifest(const std::filesystem::path& path,
                                      std::vector<Reason>* mistakes) {
  const size_t before = mistakes->size();
  std::optional<Manifest> manifest = look_at_manifest(path, mistakes);
  if (mistakes->size() != before) return std::nullopt;
  return manifest;
}

}  // namespace opdock
