// Atoms against the cases of room layout, against the formulas of the PTX manual, and banks against
// accesses whose cost is known.
#include <gtest/gtest.h>

#include <set>

#include "arch/banks.h"
#include "arch/mma_layouts.h"
#include "support/files.h"
#include "support/result.h"
#include "support/text.h"

namespace lapidary::arch {
namespace {

/// The inputs of all cases of an operation. The file has strings without escapes.
std::vector<std::pair<std::string, std::string>> inputs_of(const std::string& op) {
  std::vector<std::pair<std::string, std::string>> found;
  const std::string file = *read_file(LAPIDARY_SOURCE_DIR "/src/layout/cute_layout_cases.jsonl");
  for (const std::string_view line : split(file, '\n')) {
    if (line.find("\"op\": \"" + op + "\"") == std::string_view::npos) continue;
    const std::size_t list = line.find('[');
    const std::vector<std::string_view> words =
        split(line.substr(list, line.find(']') - list), '"');
    found.emplace_back(words.at(1), words.at(3));
  }
  return found;
}

TEST(MmaLayouts, AreThoseOfTheCases) {
  int seen = 0;
  for (const auto& [name, layout] : inputs_of("mma_tv_layout")) {
    SCOPED_TRACE(name);
    if (name == "SM80 16x8x16 B") {
      EXPECT_EQ(text(mma_sync_atom(16, 8, 16, 16)->b), layout);
    } else if (name == "SM80 16x8 C") {
      for (const MmaAtom& atom : mma_sync_atoms()) EXPECT_EQ(text(atom.c), layout);
    } else {
      ASSERT_TRUE(name.starts_with("SM90 GMMA C 64x"));
      const int n = std::stoi(name.substr(name.rfind('x') + 1));
      for (const int bits : {8, 16, 32}) EXPECT_EQ(text(wgmma_atom(n, bits)->c), layout);
    }
    ++seen;
  }
  EXPECT_EQ(seen, 8);
}

TEST(SmemAtoms, AreThoseOfTheCases) {
  int seen = 0;
  for (const auto& [name, layout] : inputs_of("gmma_smem_atom_k_major")) {
    SCOPED_TRACE(name);
    const SmemSwizzle swizzle = name.starts_with("SW128")  ? SmemSwizzle::b128
                                : name.starts_with("SW64") ? SmemSwizzle::b64
                                : name.starts_with("SW32") ? SmemSwizzle::b32
                                                           : SmemSwizzle::none;
    const int bits = name.ends_with("fp8") ? 8 : name.ends_with("bf16") ? 16 : 32;
    EXPECT_EQ(text(*smem_atom(swizzle, bits)), layout);
    ++seen;
  }
  EXPECT_EQ(seen, 8);
  EXPECT_EQ(text(*smem_atom(SmemSwizzle::b128, 16, false)), "S<3,3,3> o 0 o (64,8):(1,64)");
  EXPECT_FALSE(smem_atom(SmemSwizzle::b128, 6));
}

/// Every element is held once, by one thread.
void expect_bijective(const Layout& layout, int size) {
  std::set<std::int64_t> image;
  for (std::int64_t i = 0; i < layout.size(); ++i) image.insert(layout(i));
  EXPECT_EQ(layout.size(), size);
  EXPECT_EQ(static_cast<int>(image.size()), size);
  EXPECT_EQ(*image.rbegin(), size - 1);
}

// The row and column of element i of thread `lane`, as the PTX manual writes them.
TEST(MmaLayouts, FollowTheFormulasOfThePtxManual) {
  for (const MmaAtom& atom : mma_sync_atoms()) {
    SCOPED_TRACE(testing::Message() << "k " << atom.k << ", bits " << atom.bits);
    expect_bijective(atom.a, 16 * atom.k);
    expect_bijective(atom.b, 8 * atom.k);
    expect_bijective(atom.c, 16 * 8);
    const int packed = 32 / atom.bits;
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane >> 2, in_group = lane % 4;
      for (int i = 0; i < atom.a[1].size(); ++i) {
        // Registers of A: rows group, group + 8, and again for the second half of k.
        const int reg = i / packed;
        const int row = group + (reg % 2) * 8;
        const int col = in_group * packed + i % packed + (reg / 2) * 4 * packed;
        EXPECT_EQ(atom.a(lane, i), row + 16 * col);
      }
      for (int i = 0; i < atom.b[1].size(); ++i) {
        const int k = in_group * packed + i % packed + (i / packed) * 4 * packed;
        EXPECT_EQ(atom.b(lane, i), group + 8 * k);
      }
      for (int i = 0; i < 4; ++i)
        EXPECT_EQ(atom.c(lane, i), group + 8 * (i / 2) + 16 * (in_group * 2 + i % 2));
    }
  }
  EXPECT_EQ(text(mma_sync_atom(16, 8, 16, 16)->a), "((4,8),(2,2,2)):((32,1),(16,8,128))");
  EXPECT_EQ(text(mma_sync_atom(16, 8, 8, 32)->a), "((4,8),(2,2)):((16,1),(8,64))");
  EXPECT_EQ(text(mma_sync_atom(16, 8, 32, 8)->a), "((4,8),(4,2,2)):((64,1),(16,8,256))");
  EXPECT_EQ(mma_sync_atom(16, 8, 24, 0).error().message,
            "layout: no mma.sync is m16n8k24; there are m16n8k16 (16 bits), m16n8k8 (16 bits), "
            "m16n8k8 (32 bits), m16n8k4 (32 bits), m16n8k32 (8 bits)");
}

TEST(MmaLayouts, WarpgroupsAreFourWarpsBelowEachOther) {
  for (const int bits : {8, 16, 32}) {
    const MmaAtom atom = *wgmma_atom(64, bits);
    expect_bijective(atom.a, 64 * atom.k);
    expect_bijective(atom.c, 64 * 64);
    // The k extent is 32 bytes, as that of this mma.sync: a warp's part is that atom's A.
    const MmaAtom warp = *mma_sync_atom(16, 8, atom.k, bits);
    for (int thread = 0; thread < 128; ++thread) {
      for (int i = 0; i < atom.a[1].size(); ++i) {
        const std::int64_t in_warp = warp.a(thread % 32, i);
        EXPECT_EQ(atom.a(thread, i), in_warp % 16 + thread / 32 * 16 + 64 * (in_warp / 16));
      }
    }
  }
  EXPECT_FALSE(wgmma_atom(12, 16));
  EXPECT_FALSE(wgmma_atom(264, 16));
  EXPECT_FALSE(wgmma_atom(64, 4));
}

TEST(Banks, CountWavefronts) {
  std::vector<std::int64_t> row, column, same, wide;
  for (std::int64_t i = 0; i < 32; ++i) {
    row.push_back(4 * i);
    column.push_back(128 * i);
    same.push_back(64);
    wide.push_back(16 * i);
  }
  EXPECT_EQ(summary(bank_conflicts(row, 4), 32), "1 phase, 1 wavefront: no bank conflicts");
  EXPECT_EQ(summary(bank_conflicts(column, 4), 32),
            "1 phase, 32 wavefronts where 1 would do: 32-way bank conflict (bank 0)");
  EXPECT_EQ(summary(bank_conflicts(same, 4), 32), "1 phase, 1 wavefront: no bank conflicts");
  EXPECT_EQ(summary(bank_conflicts(wide, 16), 32),
            "4 phases of 8 threads, 4 wavefronts: no bank conflicts");
  EXPECT_EQ(bank_conflicts(row, 2).wavefronts, 1);
  EXPECT_EQ(bank_conflicts({}, 4).wavefronts, 0);
}

// Why tiles are swizzled: eight rows of 16 bytes, as ldmatrix reads them.
TEST(Banks, SwizzledTilesHaveNoConflicts) {
  for (const int bits : {8, 16, 32}) {
    for (const SmemSwizzle swizzle : {SmemSwizzle::b32, SmemSwizzle::b64, SmemSwizzle::b128}) {
      const Layout atom = *smem_atom(swizzle, bits);
      for (const Layout& layout : {atom, atom.inner()}) {
        std::vector<std::int64_t> addresses;
        for (std::int64_t row = 0; row < 8; ++row) addresses.push_back(layout(row, 0) * bits / 8);
        const BankReport report = bank_conflicts(addresses, 16);
        // Unswizzled, rows of 32, 64, 128 bytes lie on 4, 2, 1 sets of 16-byte banks.
        const int conflict = 1 << static_cast<int>(swizzle);
        EXPECT_EQ(report.wavefronts, layout.is_swizzled() ? 1 : conflict);
      }
    }
  }
}

}  // namespace
}  // namespace lapidary::arch
