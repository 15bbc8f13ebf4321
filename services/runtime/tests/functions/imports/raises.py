"""Fails in a helper."""

from helper import prepare

prepare()
