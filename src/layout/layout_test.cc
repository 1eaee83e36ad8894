// Layouts by example: what the header promises, the messages of what cannot be, and the edges of 64
// bits. The laws on random inputs are in layout_laws_test.cc.
#include "lapidary/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "layout/testing_laws.h"
#include "support/result.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

Layout L(std::string_view written) {
  const auto layout = layout_from_text(written);
  EXPECT_TRUE(layout) << written << ": " << layout.error();
  return layout ? *layout : Layout();
}
IntTuple T(std::string_view written) {
  const auto tuple = int_tuple_from_text(written);
  EXPECT_TRUE(tuple) << written << ": " << tuple.error();
  return tuple ? *tuple : IntTuple();
}
template <class Value>
std::string said(const Result<Value>& result) {
  return result ? text(*result) : result.error().message;
}
std::string said(const Result<std::int64_t>& result) {
  return result ? std::to_string(*result) : result.error().message;
}

TEST(IntTuple, ListsAreTuplesAndNumbersAreLeaves) {
  EXPECT_EQ(text(IntTuple(5)), "5");
  EXPECT_EQ(text(IntTuple{5}), "(5)");
  EXPECT_EQ(text(IntTuple()), "()");
  EXPECT_EQ(text(IntTuple{{2, 3}, 4}), "((2,3),4)");
  EXPECT_EQ(text(IntTuple{IntTuple(), 1, IntTuple{IntTuple()}}), "((),1,(()))");
  EXPECT_EQ(text(IntTuple{_, 3}), "(_,3)");
  const IntTuple nested{{2, 3}, 4};
  EXPECT_EQ(nested.rank(), 2);
  EXPECT_EQ(nested[0], (IntTuple{2, 3}));
  EXPECT_EQ(nested[1], IntTuple(4));
  EXPECT_EQ(nested[2], IntTuple());
  EXPECT_EQ(IntTuple(7)[0], IntTuple(7));
  EXPECT_EQ(depth(nested), 2);
  EXPECT_EQ(depth(IntTuple()), 1);
  EXPECT_EQ(depth(T("((),(1,((2))))")), 4);
  EXPECT_EQ(depth(IntTuple(7)), 0);
  EXPECT_EQ(text(flatten(nested)), "(2,3,4)");
  EXPECT_EQ(said(basis({1, 0}, 2)), "2@0@1");
  EXPECT_THAT(said(basis({254})), HasSubstr("mode 254"));
  EXPECT_THAT(said(basis({0, 0, 0, 0, 0, 0, 0, 0, 0})), HasSubstr("9 levels"));
}

TEST(IntTuple, LongOnesLiveOnTheHeapAndStayEqual) {
  std::vector<std::int64_t> values(100);
  std::iota(values.begin(), values.end(), 1);
  const IntTuple large = IntTuple::tuple(values);
  IntTuple copy = large, moved;
  EXPECT_EQ(copy, large);
  moved = std::move(copy);
  EXPECT_EQ(moved, large);
  copy = IntTuple{1, 2};
  EXPECT_EQ(text(copy), "(1,2)");
  copy = moved;
  EXPECT_EQ(copy, large);
  EXPECT_EQ(large[99], IntTuple(100));
}

TEST(Layout, EvaluatesNumbersAndCoordinates) {
  const Layout row = *make_layout({4, 8}, {8, 1});
  EXPECT_EQ(row(2, 3), 19);
  EXPECT_EQ(row(5), 9);  // coordinate (1,1)
  EXPECT_EQ(row.size(), 32);
  EXPECT_EQ(said(evaluate(row, IntTuple{2, 3})), "19");
  const Layout nested = L("(3,(2,3)):(3,(12,1))");
  EXPECT_EQ(nested(1, 5), 17);
  EXPECT_EQ(nested(16), 17);
  EXPECT_EQ(said(evaluate(nested, T("(1,(1,2))"))), "17");
  EXPECT_EQ(said(idx2crd(16, nested)), "(1,(1,2))");
  // Beyond the size the last mode goes on, backward everything is mirrored.
  EXPECT_EQ(row(32), 8);
  EXPECT_EQ(row(-5), -9);
  EXPECT_EQ(L("S<3,4,3> o 16 o 1024:1")(0x80), 0x80 + 16 - 16 + 0);
  // Coordinates are no numbers.
  const Layout identity = *make_identity_layout({4, {3, 2}});
  EXPECT_EQ(identity(5), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(said(evaluate(identity, 5)), "(1,(1,0))");
  EXPECT_EQ(text(coshape(identity)), "(4,(3,2))");
  EXPECT_EQ(text(coshape(L("(4,5):(1@0,2@1)"))), "(4,9)");
  EXPECT_EQ(Layout(), L("1:0"));
}

TEST(Layout, ModesAreLayouts) {
  const Layout layout = L("(4,(3,6)):(1,(4,12))");
  EXPECT_EQ(text(layout[1]), "(3,6):(4,12)");
  EXPECT_EQ(text(layout[1][1]), "6:12");
  EXPECT_EQ(text(layout[2]), "1:0");
  EXPECT_EQ(said(get(layout, {2})),
            "layout: get: (4,(3,6)):(1,(4,12)) has no mode 2; it has 0 to 1");
  EXPECT_EQ(said(get(layout, {0, 1})), "layout: get: 4:1 has no mode 1; it has mode 0 alone");
  EXPECT_EQ(said(take(layout, 1, 1)),
            "layout: take: modes 1 to 1 of (4,(3,6)):(1,(4,12)): give begin < end, from 0 to its "
            "rank 2");
  EXPECT_EQ(said(get(L("S<3,4,3> o 8 o (8,64):(64,1)"), {1})), "S<3,4,3> o 8 o 64:1");
  EXPECT_EQ(said(append(L("3:1"), L("S<1,0,1> o 0 o 4:1"))),
            "layout: append: the mode S<1,0,1> o 0 o 4:1 is swizzled; swizzles stand in front of a "
            "whole layout");
}

TEST(Layout, SlicesKeepTheOffsetsOfSwizzles) {
  const auto plain = slice_and_offset({2, _}, L("(4,8):(8,1)"));
  ASSERT_TRUE(plain);
  EXPECT_EQ(text(plain->layout), "(8):(1)");
  EXPECT_EQ(text(plain->offset), "16");
  const auto swizzled = slice_and_offset({2, _}, L("S<2,0,3> o 0 o (4,8):(8,1)"));
  ASSERT_TRUE(swizzled);
  EXPECT_EQ(text(swizzled->layout), "S<2,0,3> o 16 o (8):(1)");
  EXPECT_EQ(text(swizzled->offset), "0");
  const auto coordinates = slice_and_offset({2, _}, L("(4,8):(1@0,1@1)"));
  ASSERT_TRUE(coordinates);
  EXPECT_EQ(text(coordinates->offset), "(2,0)");
  EXPECT_EQ(said(slice(T("((_,1),2)"), L("((2,3),4):((1,2),6)"))), "(2):(1)");
  EXPECT_EQ(said(slice(_, L("(2,3):(1,2)"))), "(2,3):(1,2)");
  EXPECT_EQ(said(slice(T("(1,1)"), L("(2,3):(1,2)"))), "():()");
  EXPECT_THAT(said(slice(T("(_,1,2)"), L("(2,3):(1,2)"))), HasSubstr("as many modes"));
}

TEST(Layout, WorkedExamplesOfTheHeader) {
  EXPECT_EQ(text(coalesce(L("(2,(4,6)):(1,(2,8))"))), "48:1");
  EXPECT_EQ(said(make_layout({L("3:1"), L("(4,2):(3,12)")})), "(3,(4,2)):(1,(3,12))");
  EXPECT_EQ(said(make_layout_like(L("(4,2):(8,1)"))), "(4,2):(2,1)");
  EXPECT_EQ(said(logical_divide(L("6:2"), L("2:3"))), "(2,3):(6,2)");
  EXPECT_EQ(said(zipped_divide(L("(6,8):(8,1)"), *make_tiler({3, 4}))),
            "((3,4),(2,2)):((8,1),(24,4))");
  EXPECT_EQ(said(tiled_divide(L("(6,8):(8,1)"), *make_tiler({3, 4}))), "((3,4),2,2):((8,1),24,4)");
  EXPECT_EQ(said(flat_divide(L("(6,8):(8,1)"), *make_tiler({3, 4}))), "(3,4,2,2):(8,1,24,4)");
  EXPECT_EQ(said(zipped_divide(L("(6,8):(8,1)"), *make_tiler({_, 4}))),
            "((6,4),(1,2)):((8,1),(0,4))");
  EXPECT_EQ(said(logical_product(L("(2,2):(4,1)"), L("6:1"))), "((2,2),(2,3)):((4,1),(2,8))");
  EXPECT_EQ(said(upcast(L("(8,4):(1,8)"), 2)), "(4,4):(1,4)");
  EXPECT_EQ(said(ceil_div({512, 513}, {256, 128})), "(2,5)");
  EXPECT_EQ(said(tile_to_shape(L("S<3,3,3> o 0 o (8,64):(64,1)"), {128, 64})),
            "S<3,3,3> o 0 o ((8,16),(64,1)):((64,512),(1,0))");
  EXPECT_EQ(said(make_tiler(T("((2,_),8)"))), "<<2:1,_>,8:1>");
}

// Composed mode by mode alone, each of these would be another function.
TEST(Layout, CompositionRefusesWhatIsNoLayout) {
  EXPECT_EQ(
      said(composition(L("(8,8):(8,1)"), L("4:3"))),
      "layout: composition((8,8):(8,1), 4:3): mode 4:3 of the right meets mode 8:8 of the "
      "left: its step there, 3, does not divide extent 8, and its 4 steps leave it; use a step "
      "that divides 8 or a multiple of it");
  EXPECT_EQ(
      said(composition(L("(4,3):(3,1)"), L("6:1"))),
      "layout: composition((4,3):(3,1), 6:1): mode 6:1 of the right meets mode 4:3 of the "
      "left: 6 steps of 1 leave extent 4 after 4, which does not divide 6; use a multiple of 4 "
      "or at most 4 steps");
  // (1,1) of the right is 5: (1,1) of the left, 4; by mode it would be 15.
  EXPECT_EQ(
      said(composition(L("(4,3):(3,1)"), L("(2,2):(2,3)"))),
      "layout: composition((4,3):(3,1), (2,2):(2,3)): the modes of the right together reach 5 "
      "in mode 4:3 of the left, whose extent is 4: they would carry into the next; use modes "
      "that do not overlap there");
  EXPECT_EQ(said(composition(L("3:1"), L("2:1@1"))),
            "layout: composition(3:1, 2:1@1): the right steps in mode @1, and the left has no such "
            "mode");
  EXPECT_EQ(said(composition(L("(4,4):(1,8)"), L("(2,2):(-1,4)"))),
            "layout: composition((4,4):(1,8), (2,2):(-1,4)): the right steps forward and backward "
            "through several modes of the left; use strides of one sign");
  EXPECT_THAT(said(composition(L("(3,4):(1,3)"), L("S<1,0,1> o 2 o 4:1"))), HasSubstr("4:1"));
  EXPECT_THAT(said(composition(L("(4,4):(4,1)"), L("S<1,0,1> o 2 o 4:1"))),
              HasSubstr("offset 2 of the right"));
  EXPECT_THAT(said(composition(L("(3,4):(4,1)"), L("S<1,0,1> o 0 o 4:1"))),
              HasSubstr("mode 3:4 does not send bits to bits"));
}

TEST(Layout, WhatHasNoInverseOrComplementSaysWhy) {
  EXPECT_EQ(
      said(complement(L("(4,2):(1,2)"), 8)),
      "layout: complement((4,2):(1,2)): not injective: stride 2 lies within the 4 offsets that "
      "the smaller strides cover; use a stride of at least 4");
  EXPECT_EQ(said(complement(L("4:-1"), 8)),
            "layout: complement(4:-1): it has a negative stride; give a plain layout");
  EXPECT_EQ(
      said(complement(L("4:1@1"), T("(8)"))),
      "layout: complement(4:1@1, (8)): the layout steps in mode 1, which the target lacks; give "
      "a number for each mode of its result");
  EXPECT_EQ(said(complement(L("4:2@1"), T("(8,8)"))), "(8,2):(1@0,1@1)");
  EXPECT_EQ(
      said(left_inverse(L("(2,2):(2,5)"))),
      "layout: left_inverse((2,2):(2,5)): stride 5 is no multiple of 2 that clears its extent "
      "2; no layout inverts it");
  EXPECT_THAT(said(right_inverse(L("S<1,0,1> o 4 o 8:1"))), HasSubstr("offset 4"));
  EXPECT_THAT(said(right_inverse(L("S<1,1,-1> o 0 o 4:1"))), HasSubstr("a multiple of 8"));
}

TEST(Layout, ShapesAndStridesAreChecked) {
  EXPECT_EQ(said(make_layout({4, 8}, IntTuple(1))),
            "layout: shape (4,8) and stride 1 nest differently; give each extent its stride");
  EXPECT_THAT(said(make_layout({4, 0}, {1, 4})), HasSubstr("an extent of 0"));
  EXPECT_THAT(said(make_layout({4, -2})), HasSubstr("an extent of -2"));
  EXPECT_THAT(said(make_layout({_, 2}, {1, 1})), HasSubstr("no number"));
  EXPECT_EQ(said(layout_from_text("(2,2):(1,1@0)")),
            "layout: make_layout: strides are numbers and coordinates at once; give one kind (0 is "
            "both)");
  EXPECT_EQ(said(layout_from_text("(2,2):(1@0,1@1@0)")),
            "layout: make_layout: stride 1@0 needs a number where 1@1@0 needs a tuple");
  EXPECT_EQ(said(make_composed_layout({1, 0, 1}, 0, L("2:1@0"))),
            "layout: make_composed_layout: a swizzle takes numbers, not coordinates");
  EXPECT_EQ(said(tile_to_shape(L("(8,64):(64,1)"), {100, 64})),
            "layout: tile_to_shape: extent 100 of mode 0 is no multiple of the block's 8");
  EXPECT_EQ(said(upcast(L("(6,4):(1,6)"), 4)),
            "layout: upcast((6,4):(1,6), 4): mode 6:1 does not fall into elements of 4: its stride "
            "must be a multiple, or divide it with an extent that fills it");
  EXPECT_EQ(said(upcast(Swizzle{3, 1, 3}, 4)),
            "layout: upcast: S<3,1,3> moves single elements within 4; use at most 2");
  EXPECT_EQ(said(shape_div({3, 6}, 4)),
            "layout: shape_div: (3,6) by 4: extent 3 and what is left, 4, do not divide");
  EXPECT_EQ(
      said(coalesce(L("(2,3):(1,2)"), {1, 1, 1})),
      "layout: coalesce: profile (1,1,1) has 3 modes where (2,3):(1,2) has 2; give as many or "
      "less");
}

TEST(Layout, NothingOverflows) {
  EXPECT_THAT(said(make_layout({kLargest, 2}, {1, 1})), HasSubstr("64 bits"));
  EXPECT_THAT(said(make_layout({2, 2}, {kLargest, 1})), HasSubstr("64 bits"));
  EXPECT_THAT(said(make_layout({2}, {std::numeric_limits<std::int64_t>::min()})),
              HasSubstr("64 bits"));
  EXPECT_THAT(said(product({kLargest, 2})), HasSubstr("64 bits"));
  EXPECT_THAT(said(prefix_product({kLargest, 2, 3})), HasSubstr("64 bits"));
  const Layout large = L("(1000000000,1000000000):(1,1000000000)");
  EXPECT_EQ(cosize(large), 1000000000000000000);
  EXPECT_EQ(large(999999999, 999999999), 999999999999999999);
  EXPECT_THAT(said(logical_product(large, L("100:1"))), HasSubstr("64 bits"));
  EXPECT_THAT(said(composition(L("2:4000000000000000000"), L("4:1"))), HasSubstr("64 bits"));
  EXPECT_THAT(said(downcast(large, 100)), HasSubstr("64 bits"));
  EXPECT_THAT(said(evaluate(large, IntTuple{kLargest, kLargest})), HasSubstr("64 bits"));
  EXPECT_EQ(said(logical_divide(large, L("1000:1"))), "(1000,1000000000000000):(1,1000)");
  // Far outside: modulo 2^64, whatever comes out.
  (void)large(kLargest);
  (void)large(std::numeric_limits<std::int64_t>::min());
}

TEST(LayoutText, SaysWhatIsWrongWhere) {
  const std::pair<const char*, const char*> cases[] = {
      {"(4,8:(8,1)", "character 5: got ':', expected ',' or ')'"},
      {"(4,8)", "character 6: got the end, expected ':' and the strides"},
      {"(4,8):(8,1", "character 11: got the end, expected ',' or ')'"},
      {"(4,8):(8,1))", "character 12: got ')', expected the end"},
      {"", "character 1: got the end, expected a number or '('"},
      {"(4,,8):(1,1,1)", "character 4: got ',', expected a number or '('"},
      {"4:x", "character 3: got 'x', expected a number or '('"},
      {"99999999999999999999:1", "character 1: got '9', expected a number that fits in 64 bits"},
      {"4:1@300", "character 5: got '3', expected a mode from 0 to 253, at most 8 deep"},
      {"S<3,4> o 0 o 4:1", "character 6: got '>', expected ','"},
      {"S<3,4,3> 4:1", "character 10: got '4', expected 'o' and an offset, then 'o' and a layout"},
      {"4:1 \x01", "character 5: got an unprintable character, expected the end"},
  };
  for (const auto& [written, message] : cases)
    EXPECT_EQ(said(layout_from_text(written)), std::string("layout: ") + message) << written;
  EXPECT_EQ(said(layout_from_text(std::string(100, '(') + "1")),
            "layout: character 66: got '(', expected at most 64 nests");
  EXPECT_EQ(said(layout_from_text(" ( 4 , 8 ) : ( 8 , 1 ) ")), "(4,8):(8,1)");
  EXPECT_EQ(said(layout_from_text("Sw<3,4,3> o -0x10 o 0x40:1")), "S<3,4,3> o -16 o 64:1");
  EXPECT_EQ(said(tiler_from_text("<3:1;<2:1,_>>")), "<3:1,<2:1,_>>");
  EXPECT_EQ(said(swizzle_from_text("S<4,0,2>")),
            "layout: S<4,0,2>: bits > |shift|: 4 bits 2 apart would overlap; use at most 2 bits");
  std::ostringstream out;
  out << L("4:1") << ' ' << IntTuple{1, 2} << ' ' << Swizzle{3, 4, 3} << ' ' << Tiler(_);
  EXPECT_EQ(out.str(), "4:1 (1,2) S<3,4,3> _");
}

TEST(Layout, LawsOnLayoutsOfKernels) {
  // Smem tiles, accumulators, tilings: what the kernels are made of.
  const char* layouts[] = {"(128,64):(64,1)",
                           "(64,128):(1,64)",
                           "((4,8),(2,2)):((32,1),(16,8))",
                           "((4,8,4),(2,2,16)):((128,1,16),(64,8,512))",
                           "((8,16),(64,2)):((64,512),(1,8192))",
                           "S<3,3,3> o 0 o ((8,16),(64,1)):((64,512),(1,0))",
                           "S<2,3,3> o 0 o (8,32):(32,1)",
                           "(4,1,8):(8,0,1)"};
  int inverses = 0;
  for (const char* written : layouts) {
    const Layout layout = L(written);
    SCOPED_TRACE(written);
    const laws::Verdict right = laws::right_inverse_law(layout);
    const laws::Verdict left = laws::left_inverse_law(layout);
    EXPECT_EQ(right.broken, "");
    EXPECT_EQ(left.broken, "");
    inverses += right.accepted && left.accepted;
    for (const char* by : {"8:1", "16:2", "(2,4):(1,8)", "(4,2):(2,1)"})
      EXPECT_EQ(laws::composition_law(layout, L(by)).broken, "");
  }
  EXPECT_EQ(inverses, static_cast<int>(std::size(layouts)));
}

}  // namespace
}  // namespace lapidary
