package forge_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kici/internal/kit/service"
	"kici/internal/server/forge"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// reversing is a sealer that is no secret and yet tells a wrong row, which is all that the table needs to be tested.
type reversing struct{ lost bool }

func (reversing) Seal(plain []byte, aad string) (string, int64, error) {
	return aad + "|" + reverse(string(plain)), 3, nil
}

func (r reversing) Open(envelope, aad string) ([]byte, error) {
	rest, ok := strings.CutPrefix(envelope, aad+"|")
	if r.lost || !ok {
		return nil, errors.New("cannot decrypt " + aad)
	}
	return []byte(reverse(rest)), nil
}

func (r reversing) Reseal(envelope, aad string) (string, error) {
	_, err := r.Open(envelope, aad)
	return envelope, err
}

func reverse(s string) string {
	b := []byte(s)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

var at = service.Clock(func() time.Time { return time.UnixMilli(1_700_000_000_000) })

func settings(name string) forge.Settings {
	s := forge.Settings{Options: forge.DefaultOptions(), Verification: forge.Verification{Method: forge.MethodHMAC, Secret: "s3"}}
	s.Name = name
	return s
}

func TestSourceIsStoredAndReadBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		sources := forge.NewSources(db, reversing{}, at)
		in := settings("repos")
		in.EventTypeHeader, in.EventTypePath, in.IdempotencyKeyHeader, in.IdempotencyKeyPath = "X-Event", "$.type", "Stripe-Id", "id"
		in.AllowedEvents, in.StripHeaders, in.RateLimitRPM, in.MaxPayloadBytes = []string{"a"}, []string{"X-Key", "x-key"}, 7, 100
		in.Local = &forge.LocalConfig{RepoBasePath: "/srv/git", CloneURLBase: "http://h/git"}
		in.Verification.Header = "Stripe-Signature"
		made, err := sources.Create(t.Context(), "default", in)
		if err != nil {
			t.Fatal(err)
		}
		for name, read := range map[string]func() (forge.Source, error){
			"by id":   func() (forge.Source, error) { return sources.Get(t.Context(), made.ID) },
			"by name": func() (forge.Source, error) { return sources.ByName(t.Context(), "default", "repos") },
		} {
			got, err := read()
			if err != nil {
				t.Fatal(name, err)
			}
			if diff := cmp.Diff(made, got, cmpopts.IgnoreUnexported(forge.Source{})); diff != "" {
				t.Errorf("%s (-made +read):\n%s", name, diff)
			}
		}
		if made.RoutingKey != "generic:default:"+made.ID || made.Provider != forge.Local || made.EventTypeHeader != "x-event" {
			t.Errorf("made %+v", made)
		}
		if diff := cmp.Diff([]string{"x-key"}, made.StripHeaders); diff != "" {
			t.Error(diff)
		}
		v, err := sources.Verification(made)
		if err != nil || v.Secret != "s3" || v.Header != "stripe-signature" {
			t.Errorf("verification %+v, %v", v, err)
		}
		var stored string
		if err := db.Read().QueryRowContext(t.Context(), "SELECT verification_config FROM sources").Scan(&stored); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(stored, "s3") {
			t.Errorf("the secret is stored in clear text: %s", stored)
		}
	})
}

func TestUpdateKeepsWhatItIsNotTold(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		sources := forge.NewSources(db, reversing{}, at)
		made, err := sources.Create(t.Context(), "default", settings("a"))
		if err != nil {
			t.Fatal(err)
		}
		// A client that shows the masked configuration and sends it back changes the header and keeps the secret.
		_, err = sources.Update(t.Context(), made.ID, func(s *forge.Settings) error {
			shown := s.Verification.Config()
			shown["headerName"] = "X-Other"
			raw, err := json.Marshal(shown)
			if err != nil {
				return err
			}
			s.Verification, err = forge.ParseVerification(forge.MethodHMAC, raw)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := sources.Get(t.Context(), made.ID)
		if err != nil {
			t.Fatal(err)
		}
		v, err := sources.Verification(got)
		if err != nil || v.Secret != "s3" || v.Header != "x-other" {
			t.Errorf("verification %+v, %v", v, err)
		}
		// With a lost key everything else can still be changed, and the unreadable envelope stays.
		lost := forge.NewSources(db, reversing{lost: true}, at)
		if _, err := lost.Update(t.Context(), made.ID, func(s *forge.Settings) error { s.RateLimitRPM = 9; return nil }); err != nil {
			t.Fatal(err)
		}
		got, err = sources.Get(t.Context(), made.ID)
		if err != nil || got.RateLimitRPM != 9 {
			t.Fatalf("rate %d, %v", got.RateLimitRPM, err)
		}
		if v, err := sources.Verification(got); err != nil || v.Secret != "s3" {
			t.Errorf("verification %+v, %v", v, err)
		}
		if _, err := lost.Verification(got); err == nil {
			t.Error("a lost key opened the verification")
		}
	})
}

func TestChangesOfAnotherNodeAreInForceAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		sources, other := forge.NewSources(db, reversing{}, at), forge.NewSources(db, reversing{}, at)
		in := settings("a")
		in.AllowedEvents, in.Local = []string{"push"}, &forge.LocalConfig{RepoBasePath: "/one"}
		made, err := sources.Create(t.Context(), "default", in)
		if err != nil {
			t.Fatal(err)
		}
		want := func(secret, event, path string) {
			t.Helper()
			for range 2 { // the second time from what is remembered
				got, err := sources.ByName(t.Context(), "default", "a")
				if err != nil {
					t.Fatal(err)
				}
				v, err := sources.Verification(got)
				if err != nil || v.Secret != secret || got.AllowedEvents[0] != event || got.Local.RepoBasePath != path {
					t.Errorf("%+v, %+v, %v", got, v, err)
				}
			}
		}
		want("s3", "push", "/one")
		_, err = other.Update(t.Context(), made.ID, func(s *forge.Settings) error {
			s.AllowedEvents[0], s.Local.RepoBasePath, s.Verification.Secret = "tag", "/two", "s4"
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want("s4", "tag", "/two")
		// What a change alters before it is refused is not what others are given.
		_, err = sources.Update(t.Context(), made.ID, func(s *forge.Settings) error {
			s.AllowedEvents[0], s.Local.RepoBasePath = "other", "nowhere"
			return nil
		})
		if err == nil {
			t.Error("a relative path is taken")
		}
		want("s4", "tag", "/two")
	})
}

func TestNamesAreUniqueAmongLivingSources(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		sources := forge.NewSources(db, reversing{}, at)
		first, err := sources.Create(t.Context(), "default", settings("a"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sources.Create(t.Context(), "default", settings("a")); !errors.Is(err, forge.ErrNameTaken) {
			t.Errorf("second of the name: %v", err)
		}
		if _, err := sources.Create(t.Context(), "other", settings("a")); err != nil {
			t.Errorf("same name in another organisation: %v", err)
		}
		if err := sources.Delete(t.Context(), first.ID); err != nil {
			t.Fatal(err)
		}
		second, err := sources.Create(t.Context(), "default", settings("a"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sources.Create(t.Context(), "default", settings("b")); err != nil {
			t.Fatal(err)
		}
		if _, err := sources.Update(t.Context(), second.ID, func(s *forge.Settings) error { s.Name = "b"; return nil }); !errors.Is(err, forge.ErrNameTaken) {
			t.Errorf("renamed to a taken name: %v", err)
		}
		for deleted, want := range map[bool]int{false: 2, true: 3} {
			if list, err := sources.List(t.Context(), "default", deleted); err != nil || len(list) != want {
				t.Errorf("list with deleted=%v: %d, %v; want %d", deleted, len(list), err, want)
			}
		}
	})
}

func TestDeletedSourceIsGone(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		sources := forge.NewSources(db, reversing{}, at)
		made, err := sources.Create(t.Context(), "default", settings("a"))
		if err != nil {
			t.Fatal(err)
		}
		if err := sources.SetEnabled(t.Context(), made.ID, false); err != nil {
			t.Fatal(err)
		}
		if got, err := sources.Get(t.Context(), made.ID); err != nil || got.Enabled {
			t.Errorf("enabled %v, %v after it was turned off", got.Enabled, err)
		}
		if err := sources.Delete(t.Context(), made.ID); err != nil {
			t.Fatal(err)
		}
		if got, err := sources.Get(t.Context(), made.ID); err != nil || got.DeletedAt == 0 {
			t.Errorf("deleted at %d, %v", got.DeletedAt, err)
		}
		if _, err := sources.ByName(t.Context(), "default", "a"); !errors.Is(err, forge.ErrUnknownSource) {
			t.Errorf("by name: %v", err)
		}
		for name, do := range map[string]func() error{
			"delete": func() error { return sources.Delete(t.Context(), made.ID) },
			"enable": func() error { return sources.SetEnabled(t.Context(), made.ID, true) },
			"update": func() error {
				_, err := sources.Update(t.Context(), made.ID, func(*forge.Settings) error { return nil })
				return err
			},
		} {
			if err := do(); !errors.Is(err, forge.ErrUnknownSource) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := sources.DeleteHard(t.Context(), made.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := sources.Get(t.Context(), made.ID); !errors.Is(err, forge.ErrUnknownSource) {
			t.Errorf("after the row is removed: %v", err)
		}
	})
}

func TestProblemsOfSettingsNameEveryField(t *testing.T) {
	sources := forge.NewSources(storetest.SQLite(t), reversing{}, at)
	bad := forge.Settings{Verification: forge.Verification{Method: forge.MethodHMAC, Secret: "***"}}
	bad.DedupWindow, bad.MaxPayloadBytes, bad.RateLimitRPM = -1, 11<<20, 0
	bad.EventTypeHeader, bad.EventTypePath, bad.AllowedEvents = "a b", "a\nb", []string{""}
	bad.Local = &forge.LocalConfig{RepoBasePath: "srv", CloneURLBase: "https://u:p@h"}
	_, err := sources.Create(t.Context(), "default", bad)
	problems, ok := errors.AsType[forge.InvalidError](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	var fields []string
	for _, p := range problems {
		fields = append(fields, p.Field)
	}
	want := []string{"name", "dedupWindowSeconds", "maxPayloadBytes", "rateLimitRpm", "eventTypeHeader", "eventTypePath",
		"allowedEvents[0]", "localConfig.repoBasePath", "localConfig.cloneUrlBase", "verificationConfig"}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if _, err := sources.Create(t.Context(), "a:b", settings("x")); err == nil || !strings.Contains(err.Error(), "orgId") {
		t.Errorf("organisation with a colon: %v", err)
	}
}
