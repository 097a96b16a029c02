package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/adminwire"
	"kici/internal/core/wire"
	"kici/internal/decide/plan"
	"kici/internal/kit/seal"
	"kici/internal/server/auth"
	"kici/internal/server/engine"
	"kici/internal/server/forge"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// keptServer is a data folder and a database in which servers are opened with one key after another.
type keptServer struct {
	*Server
	t        *testing.T
	settings Settings
}

// open replaces the server by one with these keys.
func (k *keptServer) open(current, previous string) {
	k.t.Helper()
	k.shut()
	k.settings.MasterKey, k.settings.MasterKeyOld = current, previous
	s, err := Open(k.t.Context(), k.settings, slog.New(slog.DiscardHandler), io.Discard)
	if err != nil {
		k.t.Fatal(err)
	}
	k.Server = s
}

func (k *keptServer) shut() {
	if k.Server == nil {
		return
	}
	k.live.Stop()
	if err := k.close(); err != nil {
		k.t.Error(err)
	}
	k.Server = nil
}

func (k *keptServer) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// values reads everything that is sealed, through the rooms that keep it.
func (k *keptServer) values() (map[string]string, error) {
	ctx := k.t.Context()
	out := map[string]string{}
	scoped, err := k.secrets.Resolve(ctx, "default", []string{"deploy"})
	if err != nil {
		return nil, err
	}
	out["secret"] = scoped["TOKEN"]
	outputs, err := k.secrets.OutputsOf(ctx, "run", []string{"job"})
	if err != nil {
		return nil, err
	}
	out["output"] = outputs["OUT"]
	list, err := k.sources.List(ctx, "default", false)
	if err != nil {
		return nil, err
	}
	v, err := k.sources.Verification(list[0])
	out["source"] = v.Secret
	return out, err
}

// give stores a secret output of the run, as its agent sealed it for the key of the run.
func (k *keptServer) give(key, value string) (dropped []string) {
	k.t.Helper()
	public, err := k.engine.RunPublicKey(k.t.Context(), "run")
	k.must(err)
	var private string
	k.must(k.db.Read().QueryRowContext(k.t.Context(), "SELECT sealed_private_key FROM execution_runs WHERE run_id = 'run'").Scan(&private))
	agent, err := seal.NewKeyPair()
	k.must(err)
	agreed, err := seal.Agree(agent.Private, public, seal.RunOutputs)
	k.must(err)
	k.must(k.db.Write(k.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		dropped, err = k.secrets.StoreOutputsTx(ctx, tx, "run", "job", private, map[string]wire.SecretOutput{
			key: {AgentPublicKey: agent.Public, Encrypted: agreed.Seal([]byte(value))}})
		return err
	}))
	return dropped
}

// sealedTables are the tables that hold sealed values, by the schema: each says of every row which key it was, but for that of
// runs, whose keys are sealed anew in any case.
func (k *keptServer) sealedTables() (tables []string) {
	all, columns := schema(k.t, k.db)
	for _, table := range all {
		for _, c := range columns[table] {
			if c.name == "key_version" || c.name == "sealed_private_key" {
				tables = append(tables, table)
			}
		}
	}
	return tables
}

// envelopes are the sealed values of all tables: what is in a column of a table with key versions and opens nowhere but in
// its place looks like no other text, so every text that is long enough and base64 counts.
func (k *keptServer) envelopes() map[string]string {
	k.t.Helper()
	_, columns := schema(k.t, k.db)
	found := map[string]string{}
	for _, table := range k.sealedTables() {
		before := len(found)
		for _, c := range columns[table] {
			if c.kind != "text" || c.name == "public_key" {
				continue
			}
			cells, err := store.Texts(k.t.Context(), k.db.Read(), "SELECT "+c.name+" FROM "+table+" WHERE "+c.name+" IS NOT NULL")
			k.must(err)
			for _, cell := range cells {
				if _, err := k.keys.Open(cell, "another place"); errors.Is(err, seal.ErrUnreadable) && looksSealed(err) {
					found[cell] = table + "." + c.name
				}
			}
		}
		if len(found) == before {
			k.t.Fatalf("table %s holds no sealed value: this test has to put one there", table)
		}
	}
	return found
}

// looksSealed tells an envelope that does not open from a text that is none.
func looksSealed(err error) bool {
	return !errors.Is(err, seal.ErrTooShort) && !strings.Contains(err.Error(), "not base64")
}

func TestRotationLeavesNothingUnderTheOldKey(t *testing.T) {
	const first, second, third = "0f", "a1", "b2"
	key := func(digits string) string { return strings.Repeat(digits, 32) }
	eachEngine(t, func(t *testing.T, url string) {
		settings := DefaultSettings()
		settings.DataDir, settings.DatabaseURL, settings.ProvenanceIssuer = filepath.Join(t.TempDir(), "data"), url, "https://ci.test"
		k := &keptServer{t: t, settings: settings}
		t.Cleanup(k.shut)
		k.open(key(first), "")
		admin := secrets.Actor{UserID: "tok", Role: "owner"}
		k.must(k.secrets.Set(t.Context(), admin, "default", "deploy", "TOKEN", "t0ken"))
		verification := forge.Verification{Method: forge.MethodHMAC, Secret: "shared-secret"}
		source := forge.Settings{Options: forge.DefaultOptions(), Verification: verification}
		source.Name = "repos"
		_, err := k.sources.Create(t.Context(), "default", source)
		k.must(err)
		k.must(k.engine.Register(t.Context(), engine.Registration{RunID: "run", OrgID: "default", Plan: plan.Plan{Workflow: "w", Jobs: []plan.Job{{ID: "job", Name: "job", Root: true}}}}))
		if dropped := k.give("OUT", "0utput"); len(dropped) > 0 {
			t.Fatalf("dropped %v", dropped)
		}
		_, err = k.proof.RotateSigningKey(t.Context(), auth.Entry{ActorType: auth.ActorAPIKey, ActorID: "tok"})
		k.must(err)
		want, err := k.values()
		k.must(err)
		if d := cmp.Diff(map[string]string{"secret": "t0ken", "output": "0utput", "source": "shared-secret"}, want); d != "" {
			t.Fatal(d)
		}
		old := k.envelopes()

		k.open(key(second), key(first))
		_, err = k.secrets.Rotate(t.Context(), admin, 2) // and then the server is killed
		k.must(err)
		k.open(key(second), key(first))
		if v := k.keys.Version(); v != 2 {
			t.Errorf("after a restart new values are of version %d", v)
		}
		got, err := k.RotateKey(t.Context(), admin)
		k.must(err)
		if d := cmp.Diff(adminwire.RotatedKey{ReEncrypted: 1, ReEncryptedConfigs: 1, ReEncryptedRunKeys: 1, ReEncryptedSecretOutputs: 1, ReEncryptedSigningKeys: 1}, got); d != "" {
			t.Error(d)
		}
		for envelope, where := range k.envelopes() {
			if old[envelope] != "" {
				t.Errorf("%s still holds a value under the old key", where)
			}
		}
		for _, table := range k.sealedTables() {
			if table == "execution_runs" {
				continue
			}
			var least, most int64
			k.must(k.db.Read().QueryRowContext(t.Context(), "SELECT min(key_version), max(key_version) FROM "+table).Scan(&least, &most))
			if least != 3 || most != 3 {
				t.Errorf("%s holds values of the versions %d to %d", table, least, most)
			}
		}

		k.open(key(second), "")
		values, err := k.values()
		k.must(err)
		if d := cmp.Diff(want, values); d != "" {
			t.Error(d)
		}
		if dropped := k.give("LATER", "x"); len(dropped) > 0 {
			t.Error("the key of the run cannot be read")
		}
		k.open(key(first), "")
		if values, err := k.values(); !errors.Is(err, seal.ErrUnreadable) {
			t.Errorf("by the old key: %v, %v", values, err)
		}
		k.open(key(third), key(first))
		if _, err := k.RotateKey(t.Context(), admin); !errors.Is(err, seal.ErrUnreadable) {
			t.Errorf("rotated what cannot be read: %v", err)
		}
	})
}

// eachEngine runs a test on an SQLite file and on a PostgreSQL database that nobody else uses.
func eachEngine(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, "") })
	t.Run("postgres", func(t *testing.T) { test(t, storetest.PostgresURL(t)) })
}
