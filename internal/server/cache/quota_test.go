package cache

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"kici/internal/core/wire"
	"kici/internal/server/store/storetest"
)

// TestTheQuotaHoldsWhateverIsSaved saves at random, in a trusted run and in another one, and restores in between. Each
// turn has an organisation of its own in one database.
func TestTheQuotaHoldsWhateverIsSaved(t *testing.T) {
	r := fileRig(t, storetest.SQLite(t))
	turn := 0
	rapid.Check(t, func(t *rapid.T) {
		turn++
		org := fmt.Sprint("org ", turn)
		r.jobs["shared"] = Identity{OrgID: org, RepoID: "r", RunID: "a", Shared: true}
		r.jobs["own"] = Identity{OrgID: org, RepoID: "r", RunID: "b"}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			r.now++
			job, key := rapid.SampledFrom([]string{"shared", "own"}).Draw(t, "job"), rapid.SampledFrom([]string{"k1", "k2", "k3", "k4"}).Draw(t, "key")
			if rapid.Bool().Draw(t, "restore") {
				r.hit(job, key)
				continue
			}
			if r.saveLink(job, key) == "" {
				if !r.hit(job, key) {
					t.Fatalf("%s is told to skip %s, and misses it", job, key)
				}
				continue
			}
			size := rapid.IntRange(1, 700).Draw(t, "size")
			_, err := r.Blobs.Put(r.t.Context(), r.upload(job, key).path, strings.NewReader(strings.Repeat("x", size)))
			r.must(err)
			shared := r.sharedOf(org)
			err = r.saved(job, key)
			if err != nil && !(refused(err, ReasonQuota) && job == "own") {
				t.Fatalf("%s cannot save %s: %v", job, key, err)
			}
			if err == nil && !r.hit(job, key) {
				t.Fatalf("%s saved %s and misses it", job, key)
			}
			if job == "own" && r.sharedOf(org) != shared {
				t.Fatal("a run for itself displaced what is shared")
			}
			used, err := kept(r.t.Context(), r.DB.Read(), kindUser, org)
			r.must(err)
			if used > r.Defaults.UserQuota {
				t.Fatalf("%d bytes are kept", used)
			}
		}
	})
}

// hit tells whether a job finds a key.
func (r *rig) hit(job, key string) bool {
	answer, err := r.Restore(r.t.Context(), owned(job), wire.UserCacheRestoreRequest{Key: key})
	r.must(err)
	return answer.Hit
}

// sharedOf counts what an organisation's trusted runs share.
func (r *rig) sharedOf(org string) (n int) {
	r.must(r.DB.Read().QueryRowContext(r.t.Context(), "SELECT count(*) FROM cache_entries WHERE org_id = $1 AND run_id = ''", org).Scan(&n))
	return n
}
