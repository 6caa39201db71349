// Tests the comparison of a plugin's descriptor with its note; tests/cases has complete plugins for
// it.
// SPDX-License-Identifier: Apache-2.0
#include "load/descriptor.h"

#include <gtest/gtest.h>

#include "base/sha256.h"
#include "schema/schema.h"

namespace opdock {
namespace {

// A descriptor with one op, and a note that agrees with it.
struct MatchingDescriptor {
  explicit MatchingDescriptor(const std::string& text)
      : schema(parse_schema(text, nullptr)->text()) {
    op.struct_size = sizeof op;
    op.schema = schema.c_str();
    op.doc = "";
    op.plan = [](const opdock_call*, const opdock_value*, uint32_t, opdock_plan*) {
      return opdock_status{OPDOCK_OK};
    };
    op.run = [](const opdock_call*, const opdock_value*, uint32_t, opdock_value*, uint32_t) {
      return opdock_status{OPDOCK_OK};
    };
    plugin.struct_size = sizeof plugin;
    plugin.abi_major = OPDOCK_ABI_MAJOR;
    plugin.abi_minor = OPDOCK_ABI_MINOR;
    plugin.num_ops = 1;
    plugin.name = "p";
    plugin.version = "1.0";
    plugin.ops = ops;
    note.name = "p";
    note.version = *Version::parse("1.0");
    OpClaim claim;
    claim.name = "f";
    claim.schema = schema;
    claim.digest = to_hex(sha256(std::string_view(schema)));
    note.ops.push_back(claim);
  }
  // Returns the reasons that check_descriptor gives.
  std::string check() {
    std::vector<Reason> reasons;
    check_descriptor(plugin, note, &reasons);
    std::string text;
    for (const Reason& reason : reasons) text += reason.found + " | " + reason.wanted + "\n";
    return text;
  }

  std::string schema;
  opdock_op op{};
  const opdock_op* ops[1] = {&op};
  opdock_plugin plugin{};
  Note note;
};

TEST(Descriptor, HasItsTensorRules) {
  MatchingDescriptor scene("f(Tensor x) -> ()");
  scene.op.num_tensor_rules = 2;
  EXPECT_EQ(scene.check(), "op f: tensor_rules[0] is NULL | a pointer\n");
  const char* const rules[] = {"rows x", nullptr};
  scene.op.tensor_rules = rules;
  EXPECT_EQ(scene.check(), "op f: tensor_rules[1] is NULL | a pointer\n");
  scene.op.num_tensor_rules = 1;
  EXPECT_EQ(scene.check(), "");
  // A plugin of a struct without the member has none, whatever stands in `reserved`.
  scene.op.struct_size = offsetof(opdock_op, tensor_rules);
  scene.op.tensor_rules = nullptr;
  EXPECT_EQ(scene.check(), "");
}

TEST(Descriptor, HasTheNotesDecidingParameter) {
  MatchingDescriptor scene("f(int n, Tensor x, Tensor y) -> ()");
  scene.op.device_arg = 1;  // the first tensor, which is meant if the note names none
  EXPECT_EQ(scene.check(), "");
  scene.op.device_arg = 2;
  EXPECT_EQ(scene.check(),
            "op f: device_arg 2 | op f: device_arg 1, the parameter x, as the note says\n");
  scene.note.ops[0].device_arg = "y";
  EXPECT_EQ(scene.check(), "");
  scene.op.device_arg = 1;
  EXPECT_EQ(scene.check(),
            "op f: device_arg 1 | op f: device_arg 2, the parameter y, as the note says\n");
  scene.op.device_arg = 0;
  scene.note.ops[0].device_arg = "z";
  EXPECT_EQ(scene.check(),
            "op f: device_arg 0 | op f: device_arg of a parameter z, as the note says\n");
}

TEST(Descriptor, HasNoDecidingParameterWithoutTensors) {
  MatchingDescriptor scene("f(int n, int m) -> ()");
  EXPECT_EQ(scene.check(), "");
  scene.op.device_arg = 1;
  EXPECT_EQ(scene.check(),
            "op f: device_arg 1 | op f: device_arg 0, as there is no tensor, as the note says\n");
}

TEST(Descriptor, HasFunctionsOrAFormula) {
  MatchingDescriptor scene("f(Tensor x) -> Tensor");
  scene.op.plan = nullptr;
  scene.op.run = nullptr;
  const char* const neither = "op f: plan is NULL | a pointer\nop f: run is NULL | a pointer\n";
  EXPECT_EQ(scene.check(), neither);
  scene.op.formula = "x + 1";
  EXPECT_EQ(scene.check(), "");
  // A struct that ends before the member has none, whatever lies there.
  scene.op.struct_size = offsetof(opdock_op, formula);
  EXPECT_EQ(scene.check(), neither);
}

}  // namespace
}  // namespace opdock
