//go:build !linux

package main

func standBack() {}
