package cache

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/wire"
)

func TestARestoreRightAfterASaveHits(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		if key, _ := r.restored("t1", "npm-1"); key != "" {
			t.Fatalf("a hit before anything was saved: %s", key)
		}
		r.must(r.save("t1", "npm-1", "tar"))
		answer, err := r.Restore(t.Context(), owned("t2"), wire.UserCacheRestoreRequest{Key: "npm-1"})
		if err != nil || !answer.Hit || answer.MatchedKey != "npm-1" || answer.TarHash != strings.Repeat("a", 64) {
			t.Errorf("got %+v, %v", answer, err)
		}
		if _, content := r.restored("t2", "npm-1"); content != "tar" {
			t.Errorf("content %q", content)
		}
	})
}

func TestUnconfirmedUploadsAreMisses(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		link := r.saveLink("t1", "k")
		r.put(link, "half of it")
		if key, _ := r.restored("t1", "k", "k", ""); key != "" {
			t.Errorf("a hit on %s", key)
		}
		if second := r.saveLink("t2", "k"); second == "" || second == link {
			t.Errorf("the other job is told %q", second)
		}
	})
}

func TestTheFirstSaveWins(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		one, two := r.saveLink("t1", "k"), r.saveLink("t2", "k")
		r.put(one, "first")
		r.put(two, "second, longer")
		for _, job := range []string{"t2", "t1"} {
			r.must(r.saved(job, "k"))
		}
		if _, content := r.restored("t1", "k"); content != "second, longer" {
			t.Errorf("content %q", content)
		}
		if link := r.saveLink("t1", "k"); link != "" {
			t.Errorf("a saved key is not skipped")
		}
	})
}

func TestALinkForWritingCannotChangeWhatWasConfirmed(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		link := r.saveLink("t1", "k")
		r.put(link, "good")
		r.must(r.saved("t1", "k"))
		r.send("PUT", link, "evil") // an object store takes it, the server does not
		r.must(r.saved("t1", "k"))
		if _, content := r.restored("t2", "k"); content != "good" {
			t.Errorf("content %q", content)
		}
		r.now += uploadGrace.Milliseconds()
		r.must(r.sweepOnce(t.Context()))
		if list := r.blobs(); len(list) != 1 {
			t.Errorf("left: %v", list)
		}
	})
}

func TestPrefixesAreTriedInOrderAndGiveTheNewest(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for _, key := range []string{"tool-v1", "tool-v2", "Tool-v3", "to%l-v4", "outil-é-1"} {
			r.must(r.save("t1", key, key))
			r.now++
		}
		tests := []struct {
			key      string
			prefixes []string
			want     string
		}{
			{"tool-v1", []string{"tool-"}, "tool-v1"}, // exact before newer
			{"tool-v9", []string{"tool-"}, "tool-v2"},
			{"tool-v9", []string{"nope-", "tool-"}, "tool-v2"},
			{"tool-v9", []string{"Tool-", "tool-"}, "Tool-v3"},
			{"x", []string{"to_l"}, ""},
			{"x", []string{"to%"}, "to%l-v4"},
			{"x", []string{"outil-é"}, "outil-é-1"},
			{"x", []string{""}, ""}, // an empty text is no key, nor the beginning of one
			{"x", []string{"tool-v2x"}, ""},
			{"", []string{"tool-v1"}, "tool-v1"},
			{"x", nil, ""},
			{"x", append(make([]string, maxRestoreKeys), "tool-"), ""},
		}
		for _, tt := range tests {
			if got, content := r.restored("t2", tt.key, tt.prefixes...); got != tt.want || content != tt.want {
				t.Errorf("%q %q: got %q with %q, want %q", tt.key, tt.prefixes, got, content, tt.want)
			}
		}
	})
}

func TestWhoReadsWhatWhoWrote(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.must(r.save("t1", "k-1", "of trusted runs"))
		r.now++
		r.must(r.save("u1", "k-1", "of u1"))
		r.now++
		r.must(r.save("u1", "k-2", "newer of u1"))
		tests := []struct{ job, key, prefix, want string }{
			{"t2", "k-1", "", "of trusted runs"},
			{"t2", "k-2", "", ""},
			{"t2", "k-9", "k-", "of trusted runs"},
			{"u1", "k-1", "", "of u1"}, // its own before what is shared
			{"u1", "k-9", "k-", "newer of u1"},
			{"u2", "k-1", "", "of trusted runs"},
			{"u2", "k-2", "", ""},
			{"o1", "k-1", "k-", ""}, // another repository
			{"nobody", "k-1", "k-", ""},
		}
		for _, tt := range tests {
			answer, _ := r.Restore(t.Context(), owned(tt.job), wire.UserCacheRestoreRequest{Key: tt.key, RestoreKeys: []string{tt.prefix}})
			content := ""
			if answer.Hit {
				_, content = r.send("GET", answer.DownloadURL, "")
			}
			if content != tt.want {
				t.Errorf("%s reads %q with %q: got %q, want %q", tt.job, tt.key, tt.prefix, content, tt.want)
			}
		}
	})
}

func TestUnknownJobsAndBadKeysAreSkipped(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for key, code := range map[string]string{"": ReasonBadKey, strings.Repeat("k", maxKey+1): ReasonBadKey, "a\x00b": ReasonBadKey, "\xff": ReasonBadKey} {
			answer, err := r.Save(t.Context(), owned("t1"), wire.UserCacheSaveRequest{Key: key})
			if !answer.Skip || answer.UploadURL != "" || !refused(err, code) {
				t.Errorf("%q: %+v, %v", key, answer, err)
			}
			if got, _ := r.restored("t1", key, key); got != "" {
				t.Errorf("%q: hit", key)
			}
		}
		if answer, err := r.Save(t.Context(), owned("nobody"), wire.UserCacheSaveRequest{Key: "k"}); !answer.Skip || !refused(err, ReasonUnknownJob) {
			t.Errorf("unknown job: %+v, %v", answer, err)
		}
		if answer, err := r.Restore(t.Context(), owned("nobody"), wire.UserCacheRestoreRequest{Key: "k"}); answer.Hit || !refused(err, ReasonUnknownJob) {
			t.Errorf("unknown job: %+v, %v", answer, err)
		}
		r.must(r.saved("nobody", "k"))
	})
}

func TestAConfirmationWithoutAnUploadIsRefusedAndCanBeRepeated(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		link := r.saveLink("t1", "k")
		if err := r.saved("t1", "k"); !refused(err, ReasonNothingPut) {
			t.Errorf("nothing was put: %v", err)
		}
		r.put(link, "tar")
		r.must(r.saved("t1", "k"))
		r.must(r.saved("t1", "k")) // the frame came again
		if _, content := r.restored("t2", "k"); content != "tar" {
			t.Errorf("content %q", content)
		}
	})
}

func TestAServerThatDiedBetweenMoveAndEntryGoesOn(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.put(r.saveLink("t1", "k"), "tar")
		u := r.upload("t1", "k")
		r.must(r.Blobs.Move(t.Context(), u.path, u.target))
		r.must(r.saved("t1", "k"))
		if _, content := r.restored("t2", "k"); content != "tar" {
			t.Errorf("content %q", content)
		}
	})
}

func TestOfManyConfirmationsOneIsKept(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		var wg sync.WaitGroup
		for i := range 6 {
			job := fmt.Sprint("j", i)
			r.jobs[job] = r.jobs["t1"]
			r.put(r.saveLink(job, "k"), "content of "+job)
		}
		for i := range 6 {
			for range 2 { // also twice at once for the same upload
				wg.Go(func() {
					err := r.saved(fmt.Sprint("j", i), "k")
					if err != nil && !refused(err, ReasonNothingPut) {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		if _, content := r.restored("t2", "k"); !strings.HasPrefix(content, "content of j") {
			t.Errorf("content %q", content)
		}
		r.now += uploadGrace.Milliseconds()
		r.must(r.sweepOnce(t.Context()))
		if list := r.blobs(); len(list) != 1 {
			t.Errorf("left: %v", list)
		}
	})
}

func TestTheQuotaDisplacesWhatWasUsedLongestAgo(t *testing.T) {
	each(t, func(t *testing.T, r *rig) { // 1000 bytes in all
		for _, key := range []string{"a", "b", "c"} {
			r.must(r.save("t1", key, strings.Repeat(key, 300)))
			r.now++
		}
		r.restored("t1", "a")
		r.now++
		r.must(r.save("t1", "d", strings.Repeat("d", 400))) // needs 300
		r.now++
		want := map[string]bool{"a": true, "b": false, "c": true, "d": true}
		for key, kept := range want {
			if got, _ := r.restored("t1", key); (got != "") != kept {
				t.Errorf("%s is kept: %v", key, got != "")
			}
		}
		r.send("PUT", r.saveLink("t1", "e"), strings.Repeat("e", 1001)) // the server does not take it, an object store does
		if err := r.saved("t1", "e"); !refused(err, ReasonTooLarge) && !refused(err, ReasonNothingPut) {
			t.Errorf("more than the whole quota: %v", err)
		}
		if got, _ := r.restored("t1", "d"); got == "" {
			t.Error("something too large displaced what was there")
		}
	})
}

func TestARunForItselfDisplacesNothingThatIsShared(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.must(r.save("t1", "shared", strings.Repeat("s", 600)))
		r.now++
		r.must(r.save("u1", "one", strings.Repeat("1", 300)))
		r.now++
		r.must(r.save("u2", "two", strings.Repeat("2", 300))) // displaces the other run's
		if err := r.save("u2", "three", strings.Repeat("3", 500)); !refused(err, ReasonQuota) {
			t.Errorf("got %v", err)
		}
		got, _ := r.restored("t1", "shared")
		one, _ := r.restored("u1", "one")
		two, _ := r.restored("u2", "two")
		if d := cmp.Diff([]string{"shared", "", "two"}, []string{got, one, two}); d != "" {
			t.Error(d)
		}
	})
}

func TestLimitsOfAnOrganisationCountAndElseTheDefaults(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.limits["org"] = Limits{UserQuota: 10, UserTTL: time.Hour}
		r.must(r.save("t1", "k", "ten bytes+"))
		r.send("PUT", r.saveLink("t1", "k2"), "eleven bytes")
		err := r.saved("t1", "k2")
		if !refused(err, ReasonTooLarge) && !refused(err, ReasonNothingPut) {
			t.Errorf("too large: %v", err)
		}
		delete(r.limits, "org")
		r.must(r.save("t1", "k3", strings.Repeat("x", 500)))
	})
}

func TestIdleEntriesExpireAndUsedOnesDoNot(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		const day = 24 * 3600 * 1000
		r.must(r.save("t1", "used", "u"))
		r.must(r.save("t1", "idle", "i"))
		r.now += 6 * day
		r.restored("t1", "used")
		r.now += day
		if got, _ := r.restored("t1", "idle", "idle"); got != "" {
			t.Error("an idle entry is still given out")
		}
		if got, _ := r.restored("t1", "used"); got == "" {
			t.Error("a used entry has expired")
		}
		r.must(r.save("t2", "idle", "anew")) // before the sweep came
		if _, content := r.restored("t1", "idle"); content != "anew" {
			t.Errorf("content %q", content)
		}
	})
}

func TestAnEntryWhoseBlobIsGoneCanBeSavedAnew(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.must(r.save("t1", "k", "old"))
		for _, path := range r.blobs() {
			r.must(r.Blobs.Delete(t.Context(), path))
		}
		if got, _ := r.restored("t1", "k"); got != "" {
			t.Error("a hit without a blob")
		}
		r.must(r.save("t1", "k", "new"))
		if _, content := r.restored("t1", "k"); content != "new" {
			t.Errorf("content %q", content)
		}
	})
}

func TestAJobHasOnlySoManyUploadsOpen(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for i := range maxUploads {
			r.saveLink("t1", fmt.Sprint(i))
		}
		answer, err := r.Save(t.Context(), owned("t1"), wire.UserCacheSaveRequest{Key: "more"})
		if !answer.Skip || !refused(err, ReasonTooMany) {
			t.Errorf("got %+v, %v", answer, err)
		}
	})
}

func TestEvictionFreesEnoughAndNoMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOf(rapid.Int64Range(0, 100)).Draw(t, "sizes")
		excess := rapid.Int64Range(1, 500).Draw(t, "excess")
		v := eviction{excess: excess}
		total := int64(0)
		for i, size := range sizes {
			total += size
			if !v.take(entry{id: fmt.Sprint(i), size: size}) {
				break
			}
		}
		var freed int64
		for i, e := range v.victims {
			if e.id != fmt.Sprint(i) {
				t.Fatalf("victim %d is %s: not the one that was used longest ago", i, e.id)
			}
			if freed >= excess {
				t.Fatalf("%s was not needed", e.id)
			}
			freed += e.size
		}
		if v.excess != excess-freed || v.excess <= 0 != (freed >= excess) {
			t.Fatalf("freed %d of %d, says %d are to be freed", freed, excess, v.excess)
		}
	})
}
