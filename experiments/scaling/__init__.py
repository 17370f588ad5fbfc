"""Reward against compute: does a sigmoid fit, and does its beginning predict its end?"""
