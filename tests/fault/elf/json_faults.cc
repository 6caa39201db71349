// SPDX-License-Identifier: Apache-2.0
#include "fault.h"

namespace opdock_test {
namespace {

// Replaces one text in the note's JSON.
Fault swap(const std::string& name, Code code, const std::string& what, const std::string& with) {
  return {name, code, [=](Plugin& p) { p.replace(what, with); }};
}

Fault whole(const std::string& name, Code code, const std::string& json) {
  return {name, code, [=](Plugin& p) { p.json = json; }};
}

std::string nested(size_t levels) {
  return R"("toolchain":)" + std::string(levels, '[') + std::string(levels, ']');
}

}  // namespace

std::vector<Fault> json_faults() {
  constexpr Code kJson = Code::kNoteJson, kField = Code::kNoteField;
  const std::string toolchain = R"("toolchain":"a test")", name = R"("name":"axpy")";
  const std::string op_devices = R"("devices":["cpu"],"dtypes")", cpu = R"("cpu":{"arch")";
  const std::string digest = "669c6ce05420094fc91c0b7c99b98c8421a11f64df65e5bf375c78fa9bfbbdc7";
  return {
      whole("an empty text", kJson, ""),
      whole("blanks only", kJson, "   \n"),
      whole("the number 1", kJson, "1"),
      whole("null", kJson, "null"),
      whole("an array", kJson, "[]"),
      whole("a text", kJson, "\"axpy\""),
      whole("one brace", kJson, "{"),
      whole("NUL bytes", kJson, std::string(8, '\0')),
      whole("thousands of brackets", kJson, std::string(30000, '[')),
      whole("thousands of objects", kJson,
            [] {
              std::string text;
              for (int i = 0; i < 10000; ++i) text += "{\"a\":";
              return text;
            }()),
      {"a second value behind the first", kJson, [](Plugin& p) { p.json += "{}"; }},
      {"a brace too many", kJson, [](Plugin& p) { p.json += "}"; }},
      {"a NUL behind the text", kJson, [](Plugin& p) { p.json += '\0'; }},
      {"cut in the middle", kJson, [](Plugin& p) { p.json.resize(p.json.size() / 2); }},
      {"one byte short", kJson, [](Plugin& p) { p.json.pop_back(); }},
      {"a byte order mark", kJson, [](Plugin& p) { p.json.insert(0, "\xef\xbb\xbf"); }},
      {"UTF-16", kJson, [](Plugin& p) { p.json = std::string("\xff\xfe{\0}\0", 6); }},
      swap("a comma too many", kJson, R"("level":1})", R"("level":1,})"),
      swap("a comma too few", kJson, R"(,"version")", R"("version")"),
      swap("a comment", kJson, R"("license")", R"(/* */"license")"),
      swap("single quotes", kJson, name, "'name':'axpy'"),
      swap("an unquoted key", kJson, name, R"(name:"axpy")"),
      swap("NaN", kJson, toolchain, R"("toolchain":NaN)"),
      swap("Infinity", kJson, toolchain, R"("toolchain":Infinity)"),
      swap("a leading zero", kJson, toolchain, R"("toolchain":01)"),
      swap("a hexadecimal number", kJson, toolchain, R"("toolchain":0x10)"),
      swap("a number beyond double", kJson, toolchain, R"("toolchain":1e999)"),
      swap("a number beyond int64", kJson, toolchain, R"("toolchain":18446744073709551615)"),
      swap("a control character", kJson, "a test", "a\ntest"),
      swap("an unknown escape", kJson, "a test", R"(a\qtest)"),
      swap("half a surrogate pair", kJson, "a test", R"(\ud800)"),
      swap("an escaped NUL", kJson, "a test", R"(a\u0000test)"),
      swap("an escaped NUL in a key", kJson, R"("toolchain")", R"("tool\u0000chain")"),
      swap("invalid UTF-8", kJson, "a test", "a \xff test"),
      swap("a lone UTF-8 continuation", kJson, "a test", "a \x80 test"),
      swap("an overlong UTF-8 slash", kJson, "a test", "a \xc0\xaf test"),
      swap("a UTF-8 surrogate", kJson, "a test", "a \xed\xa0\x80 test"),
      swap("a cut UTF-8 sequence", kJson, "a test", "a test\xe2\x82"),
      swap("17 levels", kJson, toolchain, nested(16)),
      swap("a duplicate name", kJson, name, R"("name":"axpy","name":"evil")"),
      swap("a duplicate name, escaped", kJson, name, R"("name":"axpy","n\u0061me":"evil")"),
      swap("a duplicate inside an op", kJson, R"("flags")", R"("dtypes":[],"flags")"),
      swap("a duplicate inside cpu", kJson, R"("level":1)", R"("level":1,"level":2)"),
      swap("a duplicate in an unknown object", kJson, name, name + R"(,"x":{"a":1,"a":1})"),
      whole("an empty object", kField, "{}"),
      swap("no name", kField, name + ",", ""),
      swap("a name that is a number", kField, name, R"("name":1)"),
      swap("a name that is null", kField, name, R"("name":null)"),
      swap("an empty name", kField, name, R"("name":"")"),
      swap("a name with a slash", kField, name, R"("name":"../axpy")"),
      swap("a name with a blank", kField, name, R"("name":"a b")"),
      swap("a name of 200 characters", kField, name, R"("name":")" + std::string(200, 'a') + '"'),
      swap("no version", kField, R"("version":"0.1.0",)", ""),
      swap("a version that is a number", kField, R"("0.1.0")", "0.1"),
      swap("an empty version", kField, R"("0.1.0")", R"("")"),
      swap("a version with letters", kField, "0.1.0", "0.1.x"),
      swap("a version with a sign", kField, "0.1.0", "-1.0"),
      swap("a version with nine numbers", kField, "0.1.0", "1.2.3.4.5.6.7.8.9"),
      swap("a version beyond 32 bits", kField, "0.1.0", "4294967296.0"),
      swap("a licence that is an array", kField, R"("Apache-2.0")", R"(["Apache-2.0"])"),
      swap("a toolchain that is an object", kField, R"("a test")", "{}"),
      swap("no ops", kField, R"("ops")", R"("opps")"),
      swap("ops that are an object", kField, R"("ops":[)", R"("ops":{},"x":[)"),
      swap("an op that is a text", kField, R"("ops":[)", R"("ops":["axpy",)"),
      swap("an op without schema", kField, R"("schema")", R"("shcema")"),
      swap("a schema without parentheses", kField, "axpy(Tensor x) -> Tensor", "axpy"),
      swap("an empty schema", kField, "axpy(Tensor x) -> Tensor", ""),
      swap("a schema without a name", kField, "axpy(Tensor x) -> Tensor", "(Tensor x) -> Tensor"),
      swap("an op without digest", kField, R"("digest")", R"("digset")"),
      swap("a digest in capitals", kField, "669c6c", "669C6C"),
      swap("a digest of 63 digits", kField, "669c6c", "69c6c"),
      swap("a digest of another schema", Code::kClaimDigest, "669c6c", "669c6d"),
      swap("a schema changed under its digest", Code::kClaimDigest, "Tensor x)", "Tensor y)"),
      swap("an op twice", kField, R"("ops":[)",
           R"("ops":[{"schema":"axpy(Tensor x) -> Tensor","digest":")" + digest + R"("},)"),
      swap("an op on an unknown device", kField, op_devices, R"("devices":["tpu"],"dtypes")"),
      swap("an op on a device that is a number", kField, op_devices, R"("devices":[1],"dtypes")"),
      swap("an op on a device the plugin lacks", kField, op_devices,
           R"("devices":["cuda"],"dtypes")"),
      swap("op devices that are a text", kField, op_devices, R"("devices":"cpu","dtypes")"),
      swap("dtypes that are a text", kField, R"(["float32"])", R"("float32")"),
      swap("a shape rule that is a number", kField, R"(["like x"])", "[4]"),
      swap("flags that are an object", kField, R"(["thread-safe"])", "{}"),
      swap("gradients that are true", kField, R"("flags")", R"("gradients":true,"flags")"),
      swap("an unknown device", kField, R"(],"devices":["cpu"])", R"(],"devices":["npu"])"),
      swap("a device twice", kField, R"(],"devices":["cpu"])", R"(],"devices":["cpu","cpu"])"),
      swap("images that are an object", kField, cpu, R"("images":{},"cpu":{"arch")"),
      swap("an image that is null", kField, cpu, R"("images":[null],"cpu":{"arch")"),
      swap("an image without members", kField, cpu, R"("images":[{}],"cpu":{"arch")"),
      swap("requires that is an array", kField, cpu, R"("requires":[],"cpu":{"arch")"),
      swap("a range that is a number", kField, cpu, R"("requires":{"torch":2},"cpu":{"arch")"),
      swap("no cpu", kField, R"("cpu":{"arch")", R"("gpu":{"arch")"),
      swap("a cpu that is a text", kField, R"("cpu":{"arch":"x86_64","level":1})",
           R"("cpu":"x86_64")"),
      swap("no cpu architecture", kField, R"("arch":"x86_64",)", ""),
      swap("no cpu level", kField, R"(,"level":1)", ""),
      swap("a cpu level that is a text", kField, R"("level":1)", R"("level":"1")"),
      swap("a cpu level with a fraction", kField, R"("level":1)", R"("level":1.5)"),
      swap("cpu level 0 on x86-64", kField, R"("level":1)", R"("level":0)"),
      swap("cpu level 5", kField, R"("level":1)", R"("level":5)"),
      swap("cpu level -1", kField, R"("level":1)", R"("level":-1)"),
  };
}

}  // namespace opdock_test
