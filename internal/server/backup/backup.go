// Package backup copies a server while it works, and puts a copy back where no server runs. A backup is a folder or a
// tar archive: the database as of one moment, a list of the blobs (logs, caches, artifacts) with sizes and hashes, the
// blobs themselves and the master key where asked for, and last of all a manifest, without which a backup is not one.
//
// The database is copied before the blobs, so that it names nothing that the blobs lack; what blobs have beyond it does
// no harm.
package backup

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"kici/internal/kit/seal"
)

// Place is a server's data: its data folder, and its database where that is elsewhere.
type Place struct {
	DataDir     string
	DatabaseURL string // postgres://…; "" is the SQLite file in the data folder
	MasterKey   string // text of the configured master key; "" is the one in the data folder
}

// The engines of a database, as manifests name them.
const (
	engineSQLite   = "sqlite"
	enginePostgres = "postgres"
)

func (p Place) engine() string {
	if p.DatabaseURL != "" {
		return enginePostgres
	}
	return engineSQLite
}

// The names within a backup and a data folder.
const (
	manifestName = "manifest.json"
	listName     = "blobs.jsonl"
	blobFolder   = "blobs"
	keyName      = "master.key"
	tokenName    = "admin.token"
	nodeName     = "node-id"
	sqliteName   = "kici.db"
	dumpName     = "database.pgdump"
)

// format is the version of what this release writes. It reads this one.
const format = 1

// Manifest says what a backup holds. It is written last.
type Manifest struct {
	Format         int       `json:"format"`
	CreatedAt      time.Time `json:"createdAt"`
	Version        string    `json:"version"` // of the release that wrote it
	Hostname       string    `json:"hostname"`
	Engine         string    `json:"engine"`                  // sqlite or postgres
	ServerVersion  string    `json:"serverVersion,omitempty"` // of PostgreSQL
	Schema         int64     `json:"schema"`                  // of the database
	Database       Entry     `json:"database"`
	Node           string    `json:"node,omitempty"`           // id of the node whose folder it is, where that keeps it
	KeyFingerprint string    `json:"keyFingerprint,omitempty"` // of the master key, which it does not reveal
	KeyIncluded    bool      `json:"keyIncluded"`
	Key            *Entry    `json:"key,omitempty"`
	Blobs          Blobs     `json:"blobs"`
}

// Entry is one file of a backup.
type Entry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// Blobs sums up the blobs; their list has a line for each.
type Blobs struct {
	Included bool  `json:"included"`
	Files    int64 `json:"files"`
	Bytes    int64 `json:"bytes"`
	List     Entry `json:"list"`
}

// Progress tells how far a backup or a restore is.
type Progress struct {
	What  string // database, blobs
	Files int64
	Bytes int64
}

// The ways in which a backup or a restore is refused.
var (
	ErrExists   = errors.New("it exists already")
	ErrRunning  = errors.New("a server works with it; stop that one first")
	ErrNotEmpty = errors.New("it is not empty; --force puts the backup in the place of what is there")
	ErrDamaged  = errors.New("the backup is damaged")
)

// fingerprint tells one master key from another without revealing it. A text that is no key has none.
func fingerprint(key string) string {
	keys, err := seal.NewKeyring(key, "")
	if err != nil {
		return ""
	}
	derived, err := keys.Derive("backup fingerprint")
	if err != nil {
		return ""
	}
	return hex.EncodeToString(derived[0][:8])
}

// report calls progress, which may be nil.
func report(progress func(Progress), p Progress) {
	if progress != nil {
		progress(p)
	}
}

// stopped is the error of a copy that was interrupted, nil while it goes on.
func stopped(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	return nil
}
