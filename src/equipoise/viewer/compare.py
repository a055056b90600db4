"""Under way."""

from fastapi import APIRouter

router = APIRouter()
