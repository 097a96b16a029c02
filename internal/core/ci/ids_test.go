package ci

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

var space = uuid.MustParse("5f0e6d0e-4f52-4c0a-9c33-6f1f0c1b7aff")

func TestDerivedIDsFollowFromWhatTheyName(t *testing.T) {
	at := time.Date(2031, 2, 3, 4, 5, 6, 789e6, time.UTC).UnixMilli()
	id := DeriveID(space, at, "a", "b")
	if again := DeriveID(space, at, "a", "b"); again != id {
		t.Errorf("made twice: %s and %s", id, again)
	}
	for what, other := range map[string]string{
		"another name":        DeriveID(space, at, "a", "c"),
		"names cut elsewhere": DeriveID(space, at, "ab"),
		"another time":        DeriveID(space, at+1, "a", "b"),
		"another space":       DeriveID(uuid.Nil, at, "a", "b"),
	} {
		if other == id {
			t.Errorf("%s gives the same id", what)
		}
	}
}

func TestDerivedIDsTellAndRiseWithTheirTime(t *testing.T) {
	var ids []string
	for _, at := range []int64{0, 1, 255, 256, 1_900_000_000_000, 1_900_000_000_001, 1<<48 - 1} {
		id := uuid.MustParse(DeriveID(space, at, "x"))
		if id.Version() != 7 || id.Variant() != uuid.RFC4122 {
			t.Errorf("%s is of version %d and variant %s", id, id.Version(), id.Variant())
		}
		ids = append(ids, id.String())
	}
	if !slices.IsSorted(ids) {
		t.Errorf("ids of rising times are %v", ids)
	}
}

func TestAnIDBesideAnotherHasItsTime(t *testing.T) {
	run := DeriveID(space, 1_900_000_000_123, "run")
	job := DeriveBeside(space, run, "job")
	if job == run || job[:len("ffffffff-ffff")] != run[:len("ffffffff-ffff")] {
		t.Errorf("beside %s lies %s", run, job)
	}
	for _, other := range []string{"", "no id", "8d6c6d7e-5555-4444-8888-000000000000"} {
		if id := DeriveBeside(space, other, "job"); id != DeriveBeside(space, other, "job") || id == DeriveBeside(space, other, "j2") {
			t.Errorf("beside %q lies %s", other, id)
		}
	}
}
