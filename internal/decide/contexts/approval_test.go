package contexts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
)

var (
	security = lockfile.Clause{Team: "sec"}
	anna     = lockfile.Clause{User: "anna"}
	bert     = lockfile.Clause{User: "bert"}
)

func TestDecide(t *testing.T) {
	pending := func(queue ci.QueueType, clauses ...lockfile.Clause) Open {
		return Open{Status: ci.HoldPending, Queue: queue, Clauses: clauses, Triggerer: "trina", AllowSelfApproval: true}
	}
	voted := func(h Open, user string, satisfied ...lockfile.Clause) Open {
		h.Votes = append(h.Votes, Vote{user, Approve, satisfied})
		return h
	}
	selfless := func(h Open) Open { h.AllowSelfApproval = false; return h }
	decided := pending(ci.QueueContext)
	decided.Status = ci.HoldExpired
	sue := Actor{ID: "sue", Teams: []string{"sec"}}
	writer := Actor{ID: "will", MayDecide: true}
	type want struct {
		result               Result
		satisfied, remaining []lockfile.Clause
	}
	tests := []struct {
		name    string
		hold    Open
		through ci.QueueType
		by      Actor
		answer  Answer
		want    want
	}{
		{"the first of two clauses", pending(ci.QueueContext, security, anna), ci.QueueContext, sue, Approve,
			want{Pending, []lockfile.Clause{security}, []lockfile.Clause{anna}}},
		{"the same person again", voted(pending(ci.QueueContext, security, anna), "sue", security), ci.QueueContext, sue, Approve,
			want{result: Ineligible}},
		{"the last clause", voted(pending(ci.QueueContext, security, anna), "sue", security), ci.QueueContext, Actor{ID: "anna"}, Approve,
			want{Released, []lockfile.Clause{anna}, nil}},
		{"one person for both", pending(ci.QueueContext, security, anna), ci.QueueContext, Actor{ID: "anna", Teams: []string{"sec"}}, Approve,
			want{Released, []lockfile.Clause{security, anna}, nil}},
		{"who left the team has approved all the same", voted(pending(ci.QueueContext, security, anna), "gone", security), ci.QueueContext,
			Actor{ID: "anna"}, Approve, want{Released, []lockfile.Clause{anna}, nil}},
		{"a name satisfies nothing", pending(ci.QueueContext, anna), ci.QueueContext, Actor{ID: "eve", Name: "anna"}, Approve, want{result: Ineligible}},
		{"a user is no team", pending(ci.QueueContext, security), ci.QueueContext, Actor{ID: "sec"}, Approve, want{result: Ineligible}},
		{"the right alone satisfies no clause", pending(ci.QueueContext, anna), ci.QueueContext, writer, Approve, want{result: Ineligible}},
		{"without clauses one is enough", pending(ci.QueueContext), ci.QueueContext, writer, Approve, want{result: Released}},
		{"without clauses the right is needed", pending(ci.QueueContext), ci.QueueContext, sue, Approve, want{result: Ineligible}},
		{"for strangers the right is always needed", pending(ci.QueueSecurity, anna), ci.QueueSecurity, Actor{ID: "anna"}, Approve, want{result: Ineligible}},
		{"for strangers", pending(ci.QueueSecurity), ci.QueueSecurity, writer, Approve, want{result: Released}},
		{"a context's reviewer has no say about strangers", pending(ci.QueueSecurity), ci.QueueContext, writer, Approve, want{result: NotFound}},
		{"nor the other way", pending(ci.QueueContext), ci.QueueSecurity, writer, Reject, want{result: NotFound}},
		{"decided already", decided, ci.QueueContext, writer, Approve, want{result: NotFound}},
		{"one's own run", pending(ci.QueueContext), ci.QueueContext, Actor{ID: "trina", MayDecide: true}, Approve, want{result: Released}},
		{"one's own run, refused", selfless(pending(ci.QueueContext)), ci.QueueContext, Actor{ID: "trina", MayDecide: true}, Approve, want{result: Ineligible}},
		{"one's own run, rejected", selfless(pending(ci.QueueContext)), ci.QueueContext, Actor{ID: "trina", MayDecide: true}, Reject, want{result: Rejected}},
		{"nobody started it", selfless(Open{Status: ci.HoldPending, Queue: ci.QueueContext}), ci.QueueContext, writer, Approve, want{result: Released}},
		{"nobody answers", pending(ci.QueueContext), ci.QueueContext, Actor{MayDecide: true}, Approve, want{result: Ineligible}},
		{"one no is enough", voted(pending(ci.QueueContext, security, anna), "sue", security), ci.QueueContext, Actor{ID: "anna"}, Reject, want{result: Rejected}},
		{"after thinking again", voted(pending(ci.QueueContext, security, anna), "sue", security), ci.QueueContext, sue, Reject, want{result: Rejected}},
		{"no, with the right alone", pending(ci.QueueContext, anna), ci.QueueContext, writer, Reject, want{result: Rejected}},
		{"no, from a stranger", pending(ci.QueueContext, anna), ci.QueueContext, Actor{ID: "eve"}, Reject, want{result: Ineligible}},
		{"no about strangers, without the right", pending(ci.QueueSecurity, anna), ci.QueueSecurity, Actor{ID: "anna"}, Reject, want{result: Ineligible}},
		{"no answer at all", pending(ci.QueueContext), ci.QueueContext, writer, "maybe", want{result: Ineligible}},
	}
	for _, tt := range tests {
		d := Decide(tt.hold, tt.through, tt.by, tt.answer)
		if diff := cmp.Diff(tt.want, want{d.Result, d.Satisfied, d.Remaining}, cmp.AllowUnexported(want{})); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		if explained := d.Reason.Message != ""; explained != (d.Result != Released && d.Result != Pending) {
			t.Errorf("%s: reason %+v", tt.name, d.Reason)
		}
	}
}

func TestRejectionNamesWhoSaidNo(t *testing.T) {
	h := Open{Status: ci.HoldPending, Queue: ci.QueueContext}
	for _, tt := range []struct{ by, want string }{{"Will", "Rejected by Will"}, {"", "Rejected by will"}} {
		d := Decide(h, ci.QueueContext, Actor{ID: "will", Name: tt.by, MayDecide: true}, Reject)
		if d.Reason.Code != ci.ReasonHoldRejected || d.Reason.Message != tt.want || string(d.Reason.Details) != `{"user":"will"}` {
			t.Errorf("reason %+v", d.Reason)
		}
	}
}

// Approvals in any order release a hold exactly when the last clause is satisfied, and each satisfies what was open.
func TestApprovalsReleaseWithTheLastClause(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clauses := rapid.SliceOfNDistinct(rapid.SampledFrom([]lockfile.Clause{security, anna, bert, {Team: "ops"}}), 1, 4, rapid.ID).Draw(t, "clauses")
		h := Open{Status: ci.HoldPending, Queue: ci.QueueContext, Clauses: clauses, Triggerer: "trina"}
		teams := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"sec", "ops"}), rapid.ID)
		for range 12 {
			by := Actor{ID: rapid.SampledFrom([]string{"anna", "bert", "carl", "trina"}).Draw(t, "by"), Teams: teams.Draw(t, "teams")}
			open := h.unsatisfied()
			mine, others := by.split(open)
			d := Decide(h, ci.QueueContext, by, Approve)
			switch {
			case by.ID == "trina" || len(mine) == 0:
				if d.Result != Ineligible {
					t.Fatalf("%+v: %+v", by, d)
				}
				continue
			case len(others) == 0:
				if d.Result != Released {
					t.Fatalf("%+v: %+v", by, d)
				}
				return
			}
			if diff := cmp.Diff(others, d.Remaining); d.Result != Pending || diff != "" {
				t.Fatalf("%+v: %s%+v", by, diff, d)
			}
			h.Votes = append(h.Votes, Vote{by.ID, Approve, d.Satisfied})
		}
	})
}
