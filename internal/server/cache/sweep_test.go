package cache

import (
	"testing"
)

func (r *rig) count(table string) (n int) {
	r.t.Helper()
	r.must(r.DB.Read().QueryRowContext(r.t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

func TestTheSweepRemovesWhatExpiredAndThenItsBlob(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.must(r.save("t1", "k", "tar"))
		r.must(r.keep("t1", "a", "x"))
		r.now += 7 * 24 * 3600 * 1000
		r.must(r.sweepOnce(t.Context()))
		if n := r.count("cache_entries"); n != 1 {
			t.Errorf("%d entries", n)
		}
		if list := r.blobs(); len(list) != 2 {
			t.Errorf("a reader with a link finds %v", list)
		}
		r.now += readGrace.Milliseconds()
		r.must(r.sweepOnce(t.Context()))
		if list := r.blobs(); len(list) != 1 || r.count("cache_discards") != 0 {
			t.Errorf("left: %v", list)
		}
	})
}

func TestTheSweepRemovesWhatDeadServersLeftBehind(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.put(r.saveLink("t1", "put"), "never confirmed")
		r.put(r.saveLink("t1", "moved"), "confirmed half")
		u := r.upload("t1", "moved")
		r.must(r.Blobs.Move(t.Context(), u.path, u.target))
		r.saveLink("t1", "never put")
		r.must(r.save("t1", "kept", "tar"))
		r.must(r.sweepOnce(t.Context()))
		if list := r.blobs(); len(list) != 3 || r.count("cache_uploads") != 3 {
			t.Errorf("uploads that may go on were swept: %v", list)
		}
		for range 2 { // what a link leads to goes only when the link has ended for certain
			r.now += uploadGrace.Milliseconds()
			r.must(r.sweepOnce(t.Context()))
		}
		if list := r.blobs(); len(list) != 1 || r.count("cache_uploads") != 0 || r.count("cache_discards") != 0 {
			t.Errorf("left: %v", list)
		}
		if _, content := r.restored("t1", "kept"); content != "tar" {
			t.Errorf("content %q", content)
		}
	})
}

func TestAConfirmationThatComesAfterTheSweepIsRefused(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.put(r.saveLink("t1", "k"), "tar")
		u := r.upload("t1", "k")
		r.now += uploadGrace.Milliseconds()
		r.must(r.sweepOnce(t.Context()))
		if _, err := r.confirm(t.Context(), u, "", nil); !refused(err, ReasonNothingPut) {
			t.Errorf("got %v", err)
		}
		r.must(r.saved("t1", "k"))
		r.now += uploadGrace.Milliseconds()
		r.must(r.sweepOnce(t.Context()))
		if key, _ := r.restored("t1", "k"); key != "" || r.count("cache_entries") != 0 {
			t.Error("it was kept")
		}
	})
}

func TestTheSweepTakesMoreThanOneBatch(t *testing.T) {
	r := fileRig(t, storeOf(t))
	for i := range sweepBatch + 10 {
		r.jobs["many"] = Identity{OrgID: "org", RepoID: "r", RunID: string(rune('a' + i%26)), Shared: i%2 == 0}
		_, _, err := r.begin(t.Context(), r.jobs["many"].own(kindUser), string(rune(i+1)), "k", 1)
		r.must(err)
	}
	for range 2 {
		r.now += uploadGrace.Milliseconds()
		r.must(r.sweepOnce(t.Context()))
	}
	if r.count("cache_uploads") != 0 || r.count("cache_discards") != 0 {
		t.Error("rows are left")
	}
}
