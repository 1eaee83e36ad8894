#include "ir/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ir/kernel.h"

namespace lapidary::ir {
namespace {

// Reading a signature that is none ends the process: that each row is read is part of the test.
TEST(Table, EachRowIsReadAndSaysSomething) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < op_table().size(); ++i) {
    const OpInfo& row = op_table()[i];
    SCOPED_TRACE(row.name);
    const Opcode code = static_cast<Opcode>(i);
    EXPECT_EQ(&info(code), &row);
    EXPECT_TRUE(names.insert(row.name).second) << "there are two of that name";
    EXPECT_FALSE(row.name.ends_with('_'));
    EXPECT_FALSE(row.doc.empty());
    EXPECT_TRUE(row.doc.ends_with('.')) << row.doc;
    const Signature& s = signature(code);
    // Op keeps three operands, attributes and two regions without an allocation.
    EXPECT_LE(s.operands.size(), 3u);
    EXPECT_LE(s.regions.size(), 2u);
    std::set<std::string_view> operands;
    std::set<char> letters;
    for (const Slot& slot : s.operands) {
      EXPECT_FALSE(slot.name.empty());
      // What a slot refers to comes before it.
      if (slot.kind == Slot::Kind::element_of || slot.kind == Slot::Kind::same_as) {
        EXPECT_TRUE(operands.contains(slot.of)) << slot.of;
      }
      EXPECT_TRUE(operands.insert(slot.name).second) << slot.name;
      if (slot.kind == Slot::Kind::letter) letters.insert(slot.letter);
    }
    if (s.result) {
      EXPECT_TRUE(s.result->name.empty());
      if (s.result->kind == Slot::Kind::element_of || s.result->kind == Slot::Kind::same_as) {
        EXPECT_TRUE(operands.contains(s.result->of)) << s.result->of;
      }
    }
  }
  EXPECT_GE(names.size(), 55u);
}

TEST(Signature, IsTakenApart) {
  const Signature& add = signature(Opcode::add);
  ASSERT_EQ(add.operands.size(), 2u);
  EXPECT_EQ(add.operands[0].name, "x");
  EXPECT_EQ(add.operands[0].kind, Slot::Kind::letter);
  EXPECT_EQ(add.operands[0].letter, 'T');
  EXPECT_EQ(add.operands[0].limit, Class::number);
  EXPECT_EQ(add.operands[1].letter, 'T');
  EXPECT_EQ(add.operands[1].limit, Class::any);
  ASSERT_TRUE(add.result);
  EXPECT_EQ(add.result->letter, 'T');

  const Signature& tiles = signature(Opcode::load_tile);
  EXPECT_EQ(tiles.operands[0].kind, Slot::Kind::pointer);
  EXPECT_EQ(tiles.operands[1].kind, Slot::Kind::tile);
  EXPECT_THAT(tiles.attributes, ::testing::ElementsAre("first", "count"));
  EXPECT_FALSE(tiles.result);

  const Signature& added = signature(Opcode::atomic_add);
  EXPECT_EQ(added.operands[1].kind, Slot::Kind::element_of);
  EXPECT_EQ(added.operands[1].of, "p");
  EXPECT_EQ(added.result->kind, Slot::Kind::element_of);

  EXPECT_EQ(signature(Opcode::advance).result->kind, Slot::Kind::same_as);
  EXPECT_EQ(signature(Opcode::shl).operands[1].kind, Slot::Kind::scalar);
  EXPECT_EQ(signature(Opcode::shl).operands[1].scalar, Scalar::s32);
  EXPECT_THAT(signature(Opcode::if_).regions, ::testing::ElementsAre("then", "else"));
  EXPECT_THAT(signature(Opcode::for_).regions, ::testing::ElementsAre("body"));
  EXPECT_TRUE(signature(Opcode::print).variadic);
  EXPECT_TRUE(signature(Opcode::print).operands.empty());
  EXPECT_EQ(signature(Opcode::constant).result->letter, 0);
}

TEST(Classes, HoldWhatTheirNamesSay) {
  const struct {
    Class c;
    std::string_view name, members;
  } cases[] = {
      {Class::any, "any", "pred s32 u32 s64 u64 f16 bf16 f32 f64 "},
      {Class::bits, "bits", "s32 u32 s64 u64 f16 bf16 f32 f64 "},
      {Class::number, "number", "s32 u32 s64 u64 f32 f64 "},
      {Class::integer, "integer", "s32 u32 s64 u64 "},
      {Class::floating, "float", "f32 f64 "},
      {Class::word, "word", "s32 u32 f32 "},
      {Class::logic, "logic", "pred s32 u32 s64 u64 "},
  };
  for (const auto& [c, expected, members] : cases) {
    EXPECT_EQ(name(c), expected);
    std::string got;
    for (const Scalar type : kScalars) {
      if (contains(c, type)) got += std::string(lapidary::name(type)) + " ";
    }
    EXPECT_EQ(got, members) << expected;
  }
}

}  // namespace
}  // namespace lapidary::ir
