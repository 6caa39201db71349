// Tests what graphs of attention have besides masks and lengths: slopes, the gradient of a bias,
// dropout, rows that lie one after another, and keys in blocks.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include "attention_case.h"

namespace opdock::testing_support {
namespace {

TEST_F(Attention, Slopes) {
  for (const int64_t keys : {5, 9}) {
    Case what(kCausal, 0, 5, keys);
    what.add_slopes();
    check(&what);
  }
  Case both(kCausal | kLengths, 3, 5, 8);
  both.add_slopes();
  both.add_bias();
  check(&both);
}

TEST_F(Attention, TheGradientOfABias) {
  for (const uint32_t flags : {0u, kCausal}) {
    for (const int type : {kF16, kBf16}) {
      Case what(flags | kLse, 0, 5, 8, type);
      what.add_bias_16();
      ASSERT_EQ(caller.call(&what), OPDOCK_OK) << caller.f.error;
      what.check();
      what.what.flags |= kBackward | OPDOCK_ATTENTION_BIAS_GRADIENT;
      std::fill(what.d_bias.begin(), what.d_bias.end(), uint16_t{0x7fff});  // NaN
      ASSERT_EQ(caller.call(&what), OPDOCK_OK) << caller.f.error;
      what.check();
    }
  }
}

class AttentionDropout : public Attention {
 protected:
  static void add_dropout(Case* what, float probability = 0.25f) {
    what->what.flags |= OPDOCK_ATTENTION_DROPOUT;
    what->what.dropout = probability;
    what->what.dropout_seed = Case::kSeed;
    what->what.dropout_offset = Case::kOffset;
  }
};

TEST_F(AttentionDropout, KeepsTheSameWeightsForwardAndBackward) {
  for (const uint32_t flags : {0u, kCausal, kCausal | kLengths}) {
    Case what(flags, 0, 6, 7);
    add_dropout(&what);
    check(&what);
  }
  Case what(kLse);
  add_dropout(&what, 0.5f);
  what.what.flags |= OPDOCK_ATTENTION_DETERMINISTIC;
  ASSERT_EQ(caller.call(&what), OPDOCK_OK) << caller.f.error;
  what.check();
}
TEST_F(AttentionDropout, NumbersMayLieInTheDevicesMemory) {
  const int64_t seed = Case::kSeed, offset = Case::kOffset;
  Case what(0);
  add_dropout(&what);
  what.what.dropout_seed_at = &seed;
  what.what.dropout_offset_at = &offset;
  what.what.dropout_seed = what.what.dropout_offset = 0;
  check(&what);
}
// Own kernels would drop other weights than the library did forward.
TEST_F(AttentionDropout, WhatTheLibraryHasBegunItMustEnd) {
  const auto fails = [&](Case* what, const char* words) {
    EXPECT_EQ(caller.call(what), OPDOCK_INCOMPATIBLE);
    EXPECT_NE(std::string(caller.f.error).find(words), std::string::npos) << caller.f.error;
    EXPECT_NE(std::string(caller.f.error).find("would drop other weights"), std::string::npos);
  };
  Case captured(0, 0, 11, 12), loose(kBackward, 0, 11, 13), odd(0);
  add_dropout(&captured);
  driver.captures = true;
  fails(&captured, "the stream being captured");
  driver.captures = false;
  add_dropout(&loose);
  loose.what.d_q.token_stride += 1;
  fails(&loose, "no multiple of 16 bytes");
  // A form that is declined forward is declined backward.
  add_dropout(&odd);
  odd.what.q.token_stride += 1;
  EXPECT_EQ(caller.call(&odd), OPDOCK_UNSUPPORTED);
  odd.what.flags |= kBackward;
  odd.what.d_q.token_stride += 1;
  EXPECT_EQ(caller.call(&odd), OPDOCK_UNSUPPORTED);
}
// This test runs in a process of its own, without OPDOCK_ATTENTION.
TEST_F(AttentionDropout, DISABLED_WaitsForTheUser) {
  Case what(0);
  add_dropout(&what);
  EXPECT_EQ(caller.call(&what), OPDOCK_UNSUPPORTED);
  EXPECT_NE(std::string(caller.f.error).find("wanted OPDOCK_ATTENTION=cudnn"), std::string::npos)
      << caller.f.error;
}

// The rows of a case without their padding, one after another.
struct Ragged {
  Case& c;
  std::vector<int64_t> q_offsets{0}, k_offsets{0}, v_offsets{0}, out_offsets{0}, lse_offsets{0};
  std::vector<std::vector<uint16_t>> memory;  // q, k, v, out, d_out, d_q, d_k, d_v
  std::vector<float> lse;
  int64_t tokens = 0;

  explicit Ragged(Case* from, bool has_ragged_lse) : c(*from) {
    opdock_attention& a = c.what;
    a.flags |= kLengths | OPDOCK_ATTENTION_RAGGED;
    for (size_t b = 0; b < Case::kBatch; ++b) {
      const int64_t queries = c.query_lengths[b], keys = c.key_lengths[b];
      tokens += queries;
      q_offsets.push_back(q_offsets.back() + queries * Case::kHeads * Case::kSize);
      k_offsets.push_back(k_offsets.back() + keys * Case::kKvHeads * Case::kSize);
      v_offsets.push_back(v_offsets.back() + keys * Case::kKvHeads * Case::kValueSize);
      out_offsets.push_back(out_offsets.back() + queries * Case::kHeads * Case::kValueSize);
      lse_offsets.push_back(tokens);
    }
    for (const Item& item : items()) {
      std::vector<uint16_t>& packed = memory.emplace_back();
      each(item, [&](int64_t, int64_t at) {
        packed.push_back(item.heads->memory[static_cast<size_t>(at)]);
      });
      item.view->data = packed.data();
      item.view->row_stride = 12345;  // it must not matter
    }
    a.q_offsets = q_offsets.data();
    a.k_offsets = k_offsets.data();
    a.v_offsets = v_offsets.data();
    a.out_offsets = out_offsets.data();
    if (!has_ragged_lse) return;
    lse.resize(static_cast<size_t>(Case::kHeads * tokens));
    a.lse_offsets = lse_offsets.data();
    a.lse_strides[0] = tokens;  // [heads, tokens]
    a.lse_strides[1] = 1;
    a.lse = lse.data();
  }
  // Puts the results where the case has them.
  void unpack() {
    for (size_t i = 0; i < memory.size(); ++i) {
      const Item item = items()[i];
      int64_t from = 0;
      each(item, [&](int64_t, int64_t at) {
        item.heads->memory[static_cast<size_t>(at)] = memory[i][static_cast<size_t>(from++)];
      });
    }
    if (lse.empty()) return;
    for (int64_t b = 0; b < Case::kBatch; ++b)
      for (int64_t h = 0; h < Case::kHeads; ++h)
        for (int64_t t = 0; t < c.query_lengths[static_cast<size_t>(b)]; ++t)
          c.lse[static_cast<size_t>((b * Case::kHeads + h) * c.queries + t)] =
              lse[static_cast<size_t>(h * tokens + lse_offsets[static_cast<size_t>(b)] + t)];
  }

 private:
  struct Item {
    Heads* heads;
    opdock_attention_heads* view;
    bool is_keys;
  };
  std::vector<Item> items() {
    opdock_attention& a = c.what;
    return {{&c.q, &a.q, false},     {&c.k, &a.k, true},          {&c.v, &a.v, true},
            {&c.out, &a.out, false}, {&c.d_out, &a.d_out, false}, {&c.d_q, &a.d_q, false},
            {&c.d_k, &a.d_k, true},  {&c.d_v, &a.d_v, true}};
  }
  template <class F>
  void each(const Item& item, const F& visit) {
    const Heads& x = *item.heads;
    int64_t index = 0;
    for (int64_t b = 0; b < x.batch; ++b) {
      const auto row = static_cast<size_t>(b);
      const int64_t end = item.is_keys ? c.key_lengths[row] : c.query_lengths[row];
      for (int64_t t = 0; t < end; ++t)
        for (int64_t h = 0; h < x.heads; ++h)
          for (int64_t e = 0; e < x.size; ++e) visit(index++, x.at(b, h, t, e));
    }
  }
};

TEST_F(Attention, RaggedRows) {
  for (const bool has_ragged_lse : {false, true}) {
    for (const uint32_t flags : {0u, kCausal, kBottomRight}) {
      Case what(flags, 0, 6, 7);
      Ragged ragged(&what, has_ragged_lse);
      for (const uint32_t more : {kLse, kLse | kBackward}) {
        what.what.flags |= more;
        if (more == kLse)  // results that a wrong place would leave as they are
          std::fill(ragged.memory[3].begin(), ragged.memory[3].end(), uint16_t{0x7fff});
        ASSERT_EQ(caller.call(&what), OPDOCK_OK) << caller.f.error;
        ragged.unpack();
        // Gradients of keys behind a row's end do not exist.
        for (Heads* x : {&what.d_k, &what.d_v})
          for (int64_t b = 0; b < x->batch; ++b)
            for (int64_t t = what.key_lengths[static_cast<size_t>(b)]; t < x->tokens; ++t)
              for (int64_t h = 0; h < x->heads; ++h)
                for (int64_t e = 0; e < x->size; ++e)
                  x->memory[static_cast<size_t>(x->at(b, h, t, e))] = 0;
        what.check();
      }
    }
  }
}

TEST_F(Attention, KeysInBlocks) {
  for (const uint32_t flags : {kLengths, kLengths | kBottomRight}) {
    Case what(flags | kLse, 0, 5, 11);
    constexpr int64_t kBlock = 4, kEach = 3, kBlocks = 8;
    const std::vector<int32_t> table = {7, 2, 0, -1, 3, 5, 1, -1};  // with a place that is not read
    Heads k(kBlocks, Case::kKvHeads, kBlock, Case::kSize, kF16, 9);
    Heads v(kBlocks, Case::kKvHeads, kBlock, Case::kValueSize, kF16, 9);
    for (const auto& [from, to] : {std::pair{&what.k, &k}, {&what.v, &v}}) {
      std::fill(to->memory.begin(), to->memory.end(), uint16_t{0x7fff});  // NaN
      for (int64_t b = 0; b < from->batch; ++b)
        for (int64_t t = 0; t < from->tokens; ++t)
          for (int64_t h = 0; h < from->heads; ++h)
            for (int64_t e = 0; e < from->size; ++e) {
              const int64_t block = table[static_cast<size_t>(b * (kEach + 1) + t / kBlock)];
              to->memory[static_cast<size_t>(to->at(block, h, t % kBlock, e))] =
                  from->memory[static_cast<size_t>(from->at(b, h, t, e))];
            }
    }
    what.what.flags |= OPDOCK_ATTENTION_PAGED;
    what.what.k = k.view();
    what.what.v = v.view();
    what.what.block_table = table.data();
    what.what.table_stride = kEach + 1;
    what.what.block_size = kBlock;
    what.what.blocks = kBlocks;
    ASSERT_EQ(caller.call(&what), OPDOCK_OK) << caller.f.error;
    what.check();
  }
}

TEST_F(Attention, WhatOnlyGraphsWithoutTheseHave) {
  const auto declined = [&](Case* what, const char* words) {
    EXPECT_EQ(caller.call(what), OPDOCK_UNSUPPORTED);
    EXPECT_NE(std::string(caller.f.error).find(words), std::string::npos) << caller.f.error;
  };
  Case slopes(0), shifted(kBottomRight), wide(kBackward, 0, 5, 8), ragged(0, 0, 6, 8), paged(0),
      unknown(0);
  slopes.add_slopes();
  declined(&slopes, "slopes without the flag CAUSAL");
  shifted.add_slopes();
  declined(&shifted, "slopes or dropout beside the last query");
  wide.add_bias();
  wide.what.flags |= OPDOCK_ATTENTION_BIAS_GRADIENT;
  wide.what.d_bias = wide.d_q.memory.data();
  declined(&wide, "a gradient of a bias that");
  Ragged rows(&ragged, false);
  ragged.add_bias_16();
  declined(&ragged, "a bias of ragged rows");
  paged.what.flags |= kLengths | OPDOCK_ATTENTION_PAGED | kBackward;
  paged.what.block_size = paged.what.blocks = 4;
  declined(&paged, "keys in blocks beside ragged rows or backward");
  unknown.what.flags |= 1u << 30;
  declined(&unknown, "flags: found 1073741824");
}
TEST_F(Attention, FlagsThatContradictEachOther) {
  const auto wrong = [&](uint32_t flags, const char* words) {
    Case what(flags);
    EXPECT_EQ(caller.call(&what), OPDOCK_INVALID_ARGUMENT);
    EXPECT_NE(std::string(caller.f.error).find(words), std::string::npos) << caller.f.error;
  };
  wrong(OPDOCK_ATTENTION_DROPOUT, "dropout: found 0");
  wrong(OPDOCK_ATTENTION_BIAS_GRADIENT | kBackward, "BIAS_GRADIENT without a bias");
  wrong(OPDOCK_ATTENTION_RAGGED, "RAGGED or PAGED without lengths");
  wrong(OPDOCK_ATTENTION_PAGED | kLengths, "block_size and blocks: found 0 and 0");
}
TEST_F(Attention, AnOlderPluginsStructIsShorter) {
  Case what(0);
  what.what.struct_size = offsetof(opdock_attention, slopes);
  what.what.slopes = reinterpret_cast<const float*>(1);
  ASSERT_EQ(caller.call(&what), OPDOCK_OK) << caller.f.error;
  what.check();
}

}  // namespace
}  // namespace opdock::testing_support
