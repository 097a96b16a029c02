package cache

import (
	"context"
	"testing"

	"kici/internal/server/store"
)

func TestOfAForgottenRunOnlyWhatItSharedIsKept(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		stranger, shared := r.jobs["u1"], r.jobs["t1"]
		r.must(r.save("t1", "shared", "tar"))
		r.must(r.save("u1", "own", "tar"))
		r.must(r.keep("u1", "a", "artifact"))
		r.put(r.saveLink("u1", "begun"), "never confirmed")
		if n := r.count("cache_entries"); n != 3 || r.count("cache_uploads") != 1 || len(r.blobs()) != 4 {
			t.Fatalf("%d entries, blobs %v", n, r.blobs())
		}
		for _, run := range []string{stranger.RunID, shared.RunID, ""} {
			r.must(r.DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error { return r.ForgetRunTx(ctx, tx, run) }))
		}
		if n := r.count("cache_entries"); n != 1 || r.count("cache_uploads") != 0 {
			t.Errorf("%d entries and %d uploads are left", n, r.count("cache_uploads"))
		}
		r.must(r.sweepOnce(t.Context()))
		if list := r.blobs(); len(list) != 4 {
			t.Errorf("a reader with a link finds %v", list)
		}
		r.now += uploadGrace.Milliseconds()
		r.must(r.sweepOnce(t.Context()))
		if list := r.blobs(); len(list) != 1 || r.count("cache_discards") != 0 {
			t.Errorf("left: %v", list)
		}
		if _, content := r.restored("t1", "shared"); content != "tar" {
			t.Errorf("content %q", content)
		}
	})
}
