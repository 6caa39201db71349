// Writes seed inputs for the fuzzers: make_corpus FOLDER makes
// FOLDER/{cache,elf,formula,json,note,wheel}.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>

#include "cache/entry_format.h"
#include "support/bundle_builder.h"
#include "support/zip_builder.h"

namespace {

using namespace opdock_test;
namespace fs = std::filesystem;

void write(const fs::path& path, const std::vector<uint8_t>& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

Bytes fatbin() {
  const Bytes cubin = old_cubin(80);
  Bytes b;
  b.u32(0, 0xba55ed50).u16(4, 1).u16(6, 16).u64(8, 64 + cubin.size());
  b.u16(16, 2).u16(18, 0x101).u32(20, 64).u64(24, cubin.size()).u32(44, 80).u64(56, 0x11);
  b.u8(79, 0);
  b.add(cubin);
  return b;
}

Bytes bundle() {
  return hip_bundle({{"hipv4-amdgcn-amd-amdhsa--gfx90a", code_object(0x3f)}});
}

void write_wheels(const fs::path& folder) {
  const std::vector<ZipMember> members = {
      {.name = "foo/x.so", .bytes = "\177ELF and more", .deflated = true},
      {.name = "foo-1.data/platlib/foo/y.so.1", .bytes = "stored"},
      {.name = "foo-1.data/scripts/tool", .bytes = "\177ELF", .mode = 0100755},
      {.name = "foo-1.dist-info/METADATA", .bytes = "Name: foo\n", .deflated = true}};
  write(folder / "whole", Bytes(zip_of(members)).data);
  write(folder / "zip64",
        Bytes(zip_of({{.name = "foo/x.so", .bytes = "abc", .zip64 = true}}, {.zip64 = true})).data);
  write(folder / "odd",
        Bytes(zip_of({{.name = "../x.so", .bytes = "abc"},
                      {.name = "foo/l.so", .bytes = "/etc", .mode = 0120777},
                      {.name = "foo/l.so", .bytes = "abc", .deflated = true, .size = 99},
                      {.name = "foo/m.so", .bytes = "abc", .header = 0}},
                     {.comment = "comment"}))
            .data);
}

void write_formulas(const fs::path& folder) {
  const std::pair<const char*, std::string_view> texts[] = {
      {"norm", "y = x * rsqrt(mean(x * x) + 1e-5)  # by rows\nreturn (y * weight).to(x.dtype)"},
      {"choice", "x.exp() if x.dtype == float32 and not 'a' != \"b\" else x if True else None"},
      {"operators",
       "-x ** 2 // ~(a & b | 0x1f ^ c << 1_0 >> 2) % 3 <= .5e-3, max(x, y), row() - 1"},
      {"calls",
       "t = clamp(x, min=-1, max=inf); gelu(t, approximate='tanh'), var(t, correction=1),\\"},
  };
  for (const auto& [name, text] : texts)
    write(folder / name, std::vector<uint8_t>(text.begin(), text.end()));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const fs::path root = arguments[1];
  std::vector<Image> images = usual_images();
  images.push_back({10, 3, "gfx90a", 6, 2, code_object(0x3f), ""});
  std::vector<Plugin> plugins = {Plugin(), plugin_with(usual_images()), plugin_with(images)};
  plugins[0].needed = {"libc.so.6", "libnothing.so"};
  plugins[0].versions = {{"libc.so.6", {"GLIBC_2.2.5", "GLIBC_2.34"}}};
  plugins[0].runpath = "$ORIGIN";
  Plugin old = Plugin();
  old.sysv_hash = true;
  old.extra = fatbin();
  plugins.push_back(old);
  Plugin bundled = Plugin();
  bundled.extra = bundle();
  bundled.symbols.push_back({"malloc", false, 1});
  plugins.push_back(bundled);
  for (const unsigned version : {1, 2, 3}) {
    for (const Compression compression : {Compression::kZlib, Compression::kZstd}) {
      Plugin compressed = Plugin();
      compressed.extra = compressed_bundle(version, compression, bundle());
      compressed.extra_section = ".hip_fatbin";
      plugins.push_back(compressed);
    }
  }
  for (size_t i = 0; i < plugins.size(); ++i) {
    const std::string name = "seed" + std::to_string(i);
    Bytes& file = plugins[i].file();
    write(root / "elf" / name, file.data);
    const auto begin = file.data.begin() + static_cast<std::ptrdiff_t>(plugins[i].descriptor);
    const size_t size = 48 + plugins[i].json.size();
    write(root / "note" / name, {begin, begin + static_cast<std::ptrdiff_t>(size)});
    write(root / "json" / name, Bytes(plugins[i].json).data);
  }
  write(root / "json" / "odd",
        Bytes(R"([{"a":[1,-2.5e3,"\u00e9\ud83d\ude80",null,true,{}]}])").data);
  write_wheels(root / "wheel");
  write_formulas(root / "formula");
  opdock::cache::EntryData entry;
  entry.kind = "kernels";
  entry.key = std::string(64, 'a');
  entry.fields = {{"source", "x"}, {"arch", "sm_90"}};
  entry.files = {{"axpy.so", 5, std::string(64, 'b')}};
  const std::string bytes = encode_entry(entry, {{"image", "cubin"}, {"names", ""}});
  write(root / "cache" / "whole", Bytes(bytes).data);
  // The fuzzer adds the digest itself.
  write(root / "cache" / "body", Bytes(bytes.substr(0, bytes.size() - 32)).data);
}
