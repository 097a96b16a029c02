package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// space is a set of keys: those of one kind that one repository's trusted runs share, or that one run has for itself.
type space struct {
	kind string
	org  string
	repo string
	run  string // "" is shared
}

// folder is where the blobs of a space lie. Several spaces may have one folder; no two blobs have one path.
func (s space) folder() string {
	switch {
	case s.kind == kindSource || s.kind == kindDeps:
		return s.kind
	case s.kind == kindArtifact:
		return "artifacts/" + segment(s.org) + "/" + segment(s.run)
	case s.kind == kindLent:
		return "lent/" + segment(s.run)
	case s.run == "":
		return "cache/" + segment(s.org) + "/" + segment(s.repo) + "/shared"
	}
	return "cache/" + segment(s.org) + "/" + segment(s.repo) + "/iso/" + segment(s.run)
}

// paths are where an upload of a key goes at first, and where its blob lies once it is confirmed. The id makes both
// unique, so neither two uploads of a key nor two keys ever meet, and who may still write the first cannot touch the
// second.
func (s space) paths(key, id string) (temporary, target string) {
	folder, end := s.folder(), ".tar.gz"
	switch s.kind {
	case kindDeps:
		platform, hash, _ := strings.Cut(key, "/")
		folder, key = folder+"/"+stem(platform), hash
	case kindArtifact:
		end = ""
	}
	return folder + "/.tmp-" + id + end, folder + "/" + stem(key) + "." + id + end
}

// depsKey is the key of dependencies: what is installed depends on where.
func depsKey(platform, arch, lockfileHash string) string {
	return platform + "-" + arch + "/" + lockfileHash
}

// maxStem bounds the readable part of a file name, which file systems limit to 255 bytes in all.
const maxStem = 100

// stem makes one element of a path of any text, and never the same of two: where it cannot be the text itself, a hash of
// the text stands behind a character that no segment has.
func stem(text string) string {
	safe := segment(text)
	if safe == text && len(text) <= maxStem {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return safe[:min(len(safe), maxStem)] + "~" + hex.EncodeToString(sum[:8])
}

// segment makes one readable element of a path of any text. Different texts may have one segment.
func segment(text string) string {
	safe := strings.Map(func(r rune) rune {
		if strings.ContainsRune(safeCharacters, r) {
			return r
		}
		return '_'
	}, text)
	if strings.Trim(safe, ".") == "" {
		return "_" + safe // empty, "." and ".." are no names
	}
	return safe
}

const safeCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
