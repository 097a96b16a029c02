package seal

import (
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func derive(t *testing.T, k *Keyring, purpose string) (out []string) {
	t.Helper()
	keys, err := k.Derive(purpose)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		out = append(out, hex.EncodeToString(key))
	}
	return out
}

func TestDerivedKeysDependOnMasterKeyAndPurposeAlone(t *testing.T) {
	one, again, other := keyring(t, testKey, ""), keyring(t, testKey, ""), keyring(t, otherKey, "")
	links := derive(t, one, "links")
	if d := cmp.Diff(links, derive(t, again, "links")); d != "" || len(links) != 1 || len(links[0]) != 64 {
		t.Errorf("the same key at another server: %v %s", links, d)
	}
	if links[0] == derive(t, one, "else")[0] || links[0] == derive(t, other, "links")[0] || links[0] == testKey {
		t.Error("two purposes or two master keys have one derived key")
	}
}

func TestTheKeyBeforeARotationIsDerivedToo(t *testing.T) {
	got := derive(t, keyring(t, otherKey, testKey), "links")
	want := append(derive(t, keyring(t, otherKey, ""), "links"), derive(t, keyring(t, testKey, ""), "links")...)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
