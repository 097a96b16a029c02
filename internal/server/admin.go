package server

import "net/http"

func (s *Server) admin() http.Handler { return http.NotFoundHandler() }
