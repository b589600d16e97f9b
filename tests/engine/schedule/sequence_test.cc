#include "engine/schedule/sequence.h"

#include <map>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

using enum SequenceState;

const SequenceState kStates[] = {kHeld,         kQueued, kRunning, kQueuedAhead,
                                 kRunningAhead, kEnding, kRewound, kDone};

// The states that may follow each state.
const std::map<SequenceState, std::set<SequenceState>> kAllowed = {
    {kHeld, {kQueued, kDone}},
    {kQueued, {kRunning, kDone}},
    {kRunning, {kQueued, kQueuedAhead, kDone}},
    {kQueuedAhead, {kRunning, kRunningAhead}},
    {kRunningAhead, {kRunning, kEnding, kRewound}},
    {kEnding, {kDone}},
    {kRewound, {kRunning}},
    {kDone, {}},
};

// Moves a new sequence to the state by allowed transitions.
void Reach(SequenceState state, PagedSequence* sequence) {
  static const std::map<SequenceState, std::vector<SequenceState>> kPaths = {
      {kHeld, {}},
      {kQueued, {kQueued}},
      {kRunning, {kQueued, kRunning}},
      {kQueuedAhead, {kQueued, kRunning, kQueuedAhead}},
      {kRunningAhead, {kQueued, kRunning, kQueuedAhead, kRunningAhead}},
      {kEnding, {kQueued, kRunning, kQueuedAhead, kRunningAhead, kEnding}},
      {kRewound, {kQueued, kRunning, kQueuedAhead, kRunningAhead, kRewound}},
      {kDone, {kDone}},
  };
  for (const SequenceState next : kPaths.at(state)) sequence->MoveTo(next);
  ASSERT_EQ(sequence->state(), state);
}

TEST(SequenceState, AllowsTheDocumentedTransitions) {
  for (const SequenceState from : kStates) {
    for (const SequenceState to : kStates) {
      EXPECT_EQ(MayMove(from, to), kAllowed.at(from).contains(to))
          << static_cast<int>(from) << " to " << static_cast<int>(to);
    }
  }
}

TEST(SequenceState, FollowsAllowedTransitions) {
  for (const auto& [from, successors] : kAllowed) {
    for (const SequenceState to : successors) {
      PagedSequence sequence;
      Reach(from, &sequence);
      sequence.MoveTo(to);
      EXPECT_EQ(sequence.state(), to);
    }
  }
}

TEST(SequenceStateDeathTest, ARefusedTransitionEndsTheProcess) {
  for (const SequenceState from : kStates) {
    PagedSequence sequence;
    Reach(from, &sequence);
    for (const SequenceState to : kStates) {
      if (kAllowed.at(from).contains(to)) continue;
      EXPECT_DEATH(sequence.MoveTo(to), "MayMove")
          << static_cast<int>(from) << " to " << static_cast<int>(to);
    }
  }
}

TEST(SequenceState, IsVoidWhileItsResultWillBeDropped) {
  for (const SequenceState state : kStates) {
    PagedSequence sequence;
    Reach(state, &sequence);
    EXPECT_EQ(sequence.is_void(), state == kEnding || state == kRewound);
  }
}

}  // namespace
}  // namespace sluice
