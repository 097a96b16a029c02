package server

import (
	"log/slog"
	"strings"

	"kici/internal/kit/telemetry"
)

// logService is the name of this kind of process in logs.
const logService = "orchestrator"

// keepLog has the log of this node kept in files, too, where the settings say so. What comes before it knows its own name is
// shown and not kept.
func (s *Server) keepLog(log *slog.Logger) *slog.Logger {
	keep := s.settings.LogFiles
	if keep.Dir == "" {
		return log
	}
	s.files = &telemetry.Files{Dir: keep.Dir, Prefix: logService + "-" + fileName(s.node.id), MaxSize: keep.MaxSize, Days: keep.Days,
		Failed: func(err error) { log.Warn("the files of this log are not in order", "folder", keep.Dir, "err", err) }}
	s.log = telemetry.Tee(log, s.files, slog.String("service", logService))
	return s.log
}

// fileName makes a name that may be part of a file's: an operator chooses that of a node.
func fileName(id string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r) {
			return r
		}
		return '_'
	}, id)
}
